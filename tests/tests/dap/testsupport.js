// Microsoft's own client for tests of debug adapters, against `gantry dap`: GANTRY PROGRAM SOURCE LINE RANKS. Says "ok" when all is as it should be.
'use strict';

const assert = require('assert');
const { DebugClient } = require('@vscode/debugadapter-testsupport');

const [gantry, program, source, lineText, ranks] = process.argv.slice(2);
const line = Number(lineText);
const all = ranks === '1' ? 'rank 0' : `ranks 0-${ranks - 1}`;
const most = ranks === '1' ? '0' : `[0;${ranks - 1}]`;

async function main() {
    const client = new DebugClient(gantry, 'dap', 'gantry', { stdio: 'pipe' });
    client.defaultTimeout = 240_000;
    await client.start();
    const said = [];
    client.on('output', (event) => said.push(event.body.output));
    const began = Date.now();
    await client.hitBreakpoint(
        { launcherArgs: ['-n', ranks], program, args: ['200'] },
        { path: source, line },
    );
    const stopped = Date.now();
    // The others follow within a moment: a thread that grows is told as stopped again.
    const thread = async () => (await client.threadsRequest()).body.threads;
    let threads = await thread();
    while (!threads.some((it) => it.name === `${all}: solve`)) {
        await client.waitForEvent('stopped');
        threads = await thread();
    }
    const together = Date.now();
    assert.equal(threads.length, 1, JSON.stringify(threads));
    const threadId = threads[0].id;

    const stack = (await client.stackTraceRequest({ threadId })).body;
    assert.deepEqual(stack.stackFrames.map((frame) => frame.name), ['solve', 'main']);
    assert.equal(stack.totalFrames, 2);
    const scopes = (await client.scopesRequest({ frameId: stack.stackFrames[0].id })).body.scopes;
    const locals = (await client.variablesRequest({ variablesReference: scopes[0].variablesReference })).body.variables;
    assert.deepEqual(locals.map((it) => it.name), ['n', 'i']);
    assert.equal(locals[0].value, Number(ranks) > 2 ? '[10;11]' : '10');
    const value = async (expression, context) =>
        (await client.evaluateRequest({ expression, context, frameId: stack.stackFrames[0].id })).body;
    assert.equal((await value('rank', 'watch')).result, most);
    const field = await value('field', 'hover');
    const elements = (await client.variablesRequest({ variablesReference: field.variablesReference })).body.variables;
    assert.equal(elements.length, 4);
    assert.match((await value('print 6 * 7', 'repl')).result, /= 42/);
    const set = await client.setVariableRequest({
        variablesReference: scopes[0].variablesReference, name: 'n', value: '5',
    });
    assert.equal(set.body.value, '5');
    const looked = Date.now();

    await Promise.all([
        client.nextRequest({ threadId }),
        client.assertStoppedLocation('step', { path: source, line: line + 1 }),
    ]);
    const stepped = Date.now();
    await client.setBreakpointsRequest({ source: { path: source }, breakpoints: [] });
    await client.continueRequest({ threadId });
    while (!said.some((text) => /^\d+: round$/m.test(text))) {
        await client.waitForEvent('output');
    }
    await Promise.all([client.waitForEvent('stopped'), client.pauseRequest({ threadId })]);
    const evil = client.customRequest('nosuchrequest');
    await assert.rejects(evil, /there is no request/);
    await client.stop();
    console.log(
        `ok: ${ranks} ranks, first stop ${stopped - began} ms, all together ${together - began} ms, ` +
        `stack and variables ${looked - together} ms, step ${stepped - looked} ms`,
    );
}

main().catch((error) => {
    console.error(error);
    process.exitCode = 1;
});
