// Runs `gantry dap` for sessions of the type "gantry". There is nothing to build.
'use strict';

const vscode = require('vscode');

/** Sessions of ours that run, by their ids. */
const sessions = new Map();

function activate(context) {
    const factory = {
        createDebugAdapterDescriptor(session) {
            // Somebody else has started it: `gantry dap --listen`.
            if (typeof session.configuration.debugServer === 'number') {
                return new vscode.DebugAdapterServer(session.configuration.debugServer, '127.0.0.1');
            }
            const program = vscode.workspace.getConfiguration('gantry').get('path') || 'gantry';
            return new vscode.DebugAdapterExecutable(program, ['dap']);
        },
    };
    context.subscriptions.push(
        vscode.debug.registerDebugAdapterDescriptorFactory('gantry', factory),
        vscode.debug.onDidStartDebugSession((session) => {
            if (session.type === 'gantry') {
                sessions.set(session.id, session);
            }
        }),
        vscode.debug.onDidTerminateDebugSession((session) => sessions.delete(session.id)),
        vscode.commands.registerCommand('gantry.openThread', openThread),
    );
}

// VS Code gives the session and the thread on which the menu was opened: "thread:SESSION:NUMBER".
async function openThread(item) {
    const session = sessions.get(item && item.sessionId) || vscode.debug.activeDebugSession;
    const threadId = Number(String(item && item.threadId).split(':').pop());
    if (!session || session.type !== 'gantry' || !Number.isInteger(threadId)) {
        return;
    }
    try {
        await session.customRequest('gantry/open', { threadId });
    } catch (error) {
        vscode.window.showErrorMessage(error.message);
    }
}

module.exports = { activate };
