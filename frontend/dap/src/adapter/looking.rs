//! Frames, variables, expressions, instructions and memory: the requests to gdb, and the responses to editors.

use gantry_gdb::answer::Answer;
use gantry_gdb::mi::{Fields, quote};
use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;
use serde_json::{Value, json};

use super::running::standing_thread;
use crate::args::{Disassemble, Evaluate, ReadMemory, Scopes, SetVariable, StackTrace, Variables};
use crate::handles::{Handle, Owned};
use crate::memory::{
    MAX_INSTRUCTIONS, MAX_READ_BYTES, base64, build_disassembly, instructions, parse_address, parse_memory,
};
use crate::message::{Client, Ticket};
use crate::state::{Children, Job, Order, Response, State, Then};
use crate::values::{
    Line, Variable, address_in, as_tuple, is_heading, is_pointer, lines_of, merge, merge_texts,
    parse_children, parse_locals, parse_object, parse_registers, pick,
};

/// The maximum number of frames in one response.
const MAX_FRAMES: u32 = 1000;

/// The number of children in one response. One more entry behind them holds the rest.
const CHILDREN: u32 = 100;

/// The maximum number of shown registers. The integer registers come first.
const REGISTERS: u32 = 34;

fn rank(of: Rank) -> RankSet {
    RankSet::from_range(of..=of)
}

/// Handles `stackTrace`. The frames are those of the first rank: all ranks of the thread have the same path.
///
/// # Errors
/// There is no such thread, or it is running.
pub(crate) fn stack_trace(state: &mut State, ticket: Ticket, args: &StackTrace) -> Result<(), String> {
    let thread = standing_thread(state, ticket.client, args.thread_id)?;
    let all = thread.part.ranks;
    let first = all.first().map(rank).unwrap_or_default();
    let is_held = !first.is_disjoint(&state.held);
    let start = args.start_frame.unwrap_or_default();
    let levels = args.levels.filter(|levels| *levels > 0).unwrap_or(MAX_FRAMES).min(MAX_FRAMES);
    let end = start.saturating_add(levels - 1);
    // Starting a gdb for each held rank is not worth it: one shows the same frames.
    let ranks = if is_held { first.clone() } else { all };
    state.push(first.clone(), Order::Prepare { stay: true }, Then::Nothing);
    let commands =
        vec![format!("-stack-list-frames {start} {end}"), format!("-stack-info-depth {MAX_FRAMES}")];
    state.push(first, Order::Ask(commands), Then::Respond(ticket, Response::Stack { ranks, start }));
    Ok(())
}

/// Builds the response with the frames.
pub(crate) fn stack(
    state: &mut State,
    ticket: &Ticket,
    asked: &RankSet,
    ranks: &RankSet,
    start: u32,
    answers: &[(Answer, RankSet)],
) {
    let lines = lines_of(answers, asked);
    let frames = match only(&lines, 0) {
        Ok(fields) => fields,
        // gdb reports an error for a frame behind the last one.
        Err(_) if start > 0 => Fields::default(),
        Err(why) => return state.refuse(ticket, &why),
    };
    let first_line = state.first_line(ticket.client);
    let first = asked.first();
    let tuples = frames.list("stack").iter().filter_map(|(_, frame)| as_tuple(frame));
    let mut shown = Vec::new();
    for (level, tuple) in (start..).zip(tuples) {
        let id = state.handles.add(ranks, level, Handle::Frame);
        if let (Some(address), Some(rank)) = (tuple.text("addr"), first) {
            state.handles.add_address(address, rank);
        }
        shown.push(frame(id, tuple, first_line));
    }
    let known = start as usize + shown.len();
    let depth = only(&lines, 1).ok().and_then(|fields| fields.text("depth")?.parse::<usize>().ok());
    let total = depth.map_or(known, |depth| depth.max(known));
    state.respond(ticket, json!({ "stackFrames": shown, "totalFrames": total }));
}

fn frame(id: i64, tuple: &Fields, first_line: i64) -> Value {
    let line: i64 = tuple.text("line").and_then(|line| line.parse().ok()).unwrap_or_default();
    let name = tuple.text("func").filter(|name| *name != "??");
    let name = name.or(tuple.text("addr")).unwrap_or("??");
    let mut shown = json!({ "id": id, "name": name, "line": 0, "column": 0 });
    if let Some(address) = tuple.text("addr") {
        shown["instructionPointerReference"] = address.into();
    }
    let path = tuple.text("fullname").or(tuple.text("file"));
    if let Some(path) = path.filter(|_| line > 0) {
        let base = path.rsplit('/').next().unwrap_or(path);
        // gdb knows no absolute path for sources of distribution packages.
        shown["source"] = match path.starts_with('/') {
            true => json!({ "name": base, "path": path }),
            false => json!({ "name": base, "presentationHint": "deemphasize" }),
        };
        shown["line"] = (line - 1 + first_line).into();
        shown["column"] = first_line.into();
    } else {
        shown["presentationHint"] = "subtle".into();
    }
    shown
}

/// The result of one command of a single rank.
fn only(lines: &[(Vec<Line>, RankSet)], at: usize) -> Line {
    match lines.first().map(|(lines, _)| lines.get(at).or(lines.last().filter(|it| it.is_err()))) {
        Some(Some(line)) => line.clone(),
        _ => Err("gdb has not answered".to_owned()),
    }
}

fn owned(state: &State, id: i64) -> Result<Owned, String> {
    let none = || "its ranks have gone on since: ask for the stack again".to_owned();
    state.handles.get(id).cloned().ok_or_else(none)
}

/// Handles `scopes`.
///
/// # Errors
/// The frame belongs to an earlier stop.
pub(crate) fn scopes(state: &mut State, ticket: &Ticket, args: &Scopes) -> Result<(), String> {
    let Owned { ranks, level, .. } = owned(state, args.frame_id)?;
    let locals = state.handles.add(&ranks, level, Handle::Locals);
    let registers = state.handles.add(&ranks, level, Handle::Registers);
    let scopes = json!([
        { "name": "Locals", "presentationHint": "locals", "variablesReference": locals, "expensive": false },
        { "name": "Registers", "presentationHint": "registers", "variablesReference": registers, "expensive": true },
    ]);
    state.respond(ticket, json!({ "scopes": scopes }));
    Ok(())
}

fn select(level: u32) -> String {
    format!("-stack-select-frame {level}")
}

/// Handles `variables`.
///
/// # Errors
/// The variables belong to an earlier stop.
pub(crate) fn variables(state: &mut State, ticket: Ticket, args: &Variables) -> Result<(), String> {
    let Owned { ranks, level, handle } = owned(state, args.variables_reference)?;
    let list = args.variables_reference;
    let (commands, response) = match handle {
        Handle::Frame => return Err("a frame is no list of variables".to_owned()),
        Handle::Locals => {
            let command = "-stack-list-variables --simple-values".to_owned();
            (vec![select(level), command], Response::Locals { level, list })
        }
        Handle::Registers => {
            let numbers: Vec<String> = (0..REGISTERS).map(|number| number.to_string()).collect();
            let values = format!("-data-list-register-values --skip-unavailable x {}", numbers.join(" "));
            (vec![select(level), "-data-list-register-names".to_owned(), values], Response::Registers)
        }
        Handle::Expression(text) => {
            let object = state.handles.name_object(&ranks);
            let create = format!("-var-create {object} * {}", quote(&text));
            let commands = vec![select(level), create, build_children(&object, 0)];
            (commands, Response::Children(Children { level, list, object, from: 0, found: Vec::new() }))
        }
        Handle::Object(object, from) => {
            let commands = vec![build_children(&object, from)];
            (commands, Response::Children(Children { level, list, object, from, found: Vec::new() }))
        }
    };
    state.push(ranks, Order::Ask(commands), Then::Respond(ticket, response));
    Ok(())
}

fn build_children(object: &str, from: u32) -> String {
    format!("-var-list-children --all-values {object} {from} {}", from.saturating_add(CHILDREN))
}

/// Builds the response with the variables of a function.
pub(crate) fn locals(
    state: &mut State,
    ticket: &Ticket,
    (level, list): (u32, i64),
    ranks: &RankSet,
    answers: &[(Answer, RankSet)],
) {
    let (good, bad) = pick(&lines_of(answers, ranks), |lines| lines.last());
    if good.is_empty() {
        return state.refuse(ticket, &merge_texts(&bad));
    }
    let lists: Vec<(Vec<Variable>, RankSet)> =
        good.iter().map(|(fields, ranks)| (parse_locals(fields), ranks.clone())).collect();
    let shown = show(state, &lists, ranks, level, list);
    state.respond(ticket, json!({ "variables": shown }));
}

/// Builds the response with the registers.
pub(crate) fn registers(state: &mut State, ticket: &Ticket, ranks: &RankSet, answers: &[(Answer, RankSet)]) {
    let lines = lines_of(answers, ranks);
    let (names, _) = pick(&lines, |lines| lines.get(1));
    let (values, bad) = pick(&lines, |lines| lines.get(2).or(lines.last()));
    let Some((names, _)) = names.first().filter(|_| !values.is_empty()) else {
        return state.refuse(ticket, &merge_texts(&bad));
    };
    let lists: Vec<(Vec<Variable>, RankSet)> =
        values.iter().map(|(fields, ranks)| (parse_registers(names, fields), ranks.clone())).collect();
    let shown = show(state, &lists, ranks, 0, 0);
    state.respond(ticket, json!({ "variables": shown }));
}

/// Builds the response with the children of an object. Children below a C++ access heading need one more request.
pub(crate) fn children(
    state: &mut State,
    ticket: Ticket,
    of: Children,
    ranks: &RankSet,
    answers: &[(Answer, RankSet)],
) {
    let lines = lines_of(answers, ranks);
    let (mut lists, mut has_more) = (Vec::new(), false);
    for (lines, ranks) in &lines {
        let mut all = Vec::new();
        let mut why = None;
        for line in lines {
            match line {
                Ok(fields) => {
                    let (children, more) = parse_children(fields);
                    has_more |= more;
                    all.extend(children);
                }
                Err(error) => why = Some(error.clone()),
            }
        }
        if let (Some(why), true) = (why, all.is_empty()) {
            return state.refuse(&ticket, &why);
        }
        lists.push((all, ranks.clone()));
    }
    let first = lists.first().filter(|_| of.found.is_empty());
    let headings: Vec<String> = first
        .map(|(list, _)| list.iter().filter(|it| is_heading(it)).filter_map(|it| it.object.clone()).collect())
        .unwrap_or_default();
    for (list, _) in &mut lists {
        list.retain(|it| !is_heading(it));
    }
    if !headings.is_empty() {
        let commands = headings.iter().map(|object| build_children(object, 0)).collect();
        let then = Then::Respond(ticket, Response::Children(Children { found: lists, ..of }));
        state.jobs.push_front(Job { ranks: ranks.clone(), order: Order::Ask(commands), then });
        return;
    }
    let mut all = of.found;
    for (list, ranks) in lists {
        match all.iter_mut().find(|(_, of)| *of == ranks) {
            Some((found, _)) => found.extend(list),
            None => all.push((list, ranks)),
        }
    }
    let mut shown = show(state, &all, ranks, of.level, of.list);
    if has_more {
        let next = of.from.saturating_add(CHILDREN);
        let more = state.handles.add(ranks, of.level, Handle::Object(of.object, next));
        shown.push(json!({ "name": format!("[{next}...]"), "value": "more", "variablesReference": more }));
    }
    state.respond(&ticket, json!({ "variables": shown }));
}

/// Converts variables to the form that editors expect.
fn show(
    state: &mut State,
    lists: &[(Vec<Variable>, RankSet)],
    ranks: &RankSet,
    level: u32,
    list: i64,
) -> Vec<Value> {
    let mut lists = lists.to_vec();
    lists.sort_by_key(|(_, ranks)| ranks.first());
    let own: Vec<Option<String>> =
        lists.first().map(|(list, _)| list.iter().map(|it| it.value.clone()).collect()).unwrap_or_default();
    let mut shown = Vec::new();
    for (variable, own) in merge(&lists).into_iter().zip(own) {
        let reference = match (&variable.object, variable.has_parts) {
            (_, false) => 0,
            (Some(object), true) => state.handles.add(ranks, level, Handle::Object(object.clone(), 0)),
            (None, true) => state.handles.add(ranks, level, Handle::Expression(variable.name.clone())),
        };
        if let Some(object) = &variable.object {
            state.handles.add_child(list, &variable.name, object);
        }
        let mut json = json!({
            "name": variable.name, "value": variable.value.unwrap_or_default(), "variablesReference": reference,
        });
        if !variable.kind.is_empty() {
            json["type"] = variable.kind.clone().into();
        }
        let address = own.as_deref().and_then(address_in).filter(|_| is_pointer(&variable.kind));
        if let (Some(address), Some(rank)) = (address, ranks.first()) {
            state.handles.add_address(address, rank);
            json["memoryReference"] = address.into();
        }
        if list > 0 && variable.object.is_none() {
            json["evaluateName"] = variable.name.into();
        }
        shown.push(json);
    }
    shown
}

/// Handles `evaluate`, except for lines typed at the prompt.
///
/// # Errors
/// The request names no frame.
pub(crate) fn evaluate(state: &mut State, ticket: Ticket, args: &Evaluate) -> Result<(), String> {
    let frame = args.frame_id.ok_or("this is evaluated in a frame: let its ranks stand, and choose one")?;
    let Owned { ranks, level, .. } = owned(state, frame)?;
    let object = state.handles.name_object(&ranks);
    let create = format!("-var-create {object} * {}", quote(&args.expression));
    let then = Then::Respond(ticket, Response::Evaluated { level, object });
    state.push(ranks, Order::Ask(vec![select(level), create]), then);
    Ok(())
}

/// Builds the response with the value of an expression.
pub(crate) fn evaluated(
    state: &mut State,
    ticket: &Ticket,
    (level, object): (u32, String),
    ranks: &RankSet,
    answers: &[(Answer, RankSet)],
) {
    let (good, bad) = pick(&lines_of(answers, ranks), |lines| lines.last());
    let Some((first, first_ranks)) = good.first() else {
        return state.refuse(ticket, &merge_texts(&bad));
    };
    let variable = parse_object(first);
    let result = merge_values(&good, bad, "{...}");
    let reference = match variable.has_parts {
        true => state.handles.add(ranks, level, Handle::Object(object, 0)),
        false => 0,
    };
    let mut body = json!({ "result": result, "type": variable.kind, "variablesReference": reference });
    let address = variable.value.as_deref().and_then(address_in);
    if let (Some(address), Some(rank)) = (address, first_ranks.first()) {
        state.handles.add_address(address, rank);
        body["memoryReference"] = address.into();
    }
    state.respond(ticket, body);
}

/// Handles `setVariable`. All ranks of the thread get the value.
///
/// # Errors
/// There is no such variable, or it belongs to an earlier stop.
pub(crate) fn set_variable(state: &mut State, ticket: Ticket, args: &SetVariable) -> Result<(), String> {
    let Owned { ranks, level, handle } = owned(state, args.variables_reference)?;
    let assignment = |name: &str| {
        vec![
            select(level),
            format!("-data-evaluate-expression {}", quote(&format!("{name} = {}", args.value))),
        ]
    };
    let commands = match handle {
        Handle::Locals => assignment(&args.name),
        Handle::Registers => assignment(&format!("${}", args.name)),
        _ => {
            let child = state.handles.child(args.variables_reference, &args.name);
            let child = child.ok_or_else(|| format!("there is no variable {}", args.name))?;
            vec![format!("-var-assign {child} {}", quote(&args.value))]
        }
    };
    state.push(ranks, Order::Ask(commands), Then::Respond(ticket, Response::Assigned));
    Ok(())
}

/// Builds the response with the new value of a variable.
pub(crate) fn assigned(state: &mut State, ticket: &Ticket, ranks: &RankSet, answers: &[(Answer, RankSet)]) {
    let (good, bad) = pick(&lines_of(answers, ranks), |lines| lines.last());
    if good.is_empty() {
        return state.refuse(ticket, &merge_texts(&bad));
    }
    state.respond(ticket, json!({ "value": merge_values(&good, bad, "") }));
}

/// The values of all ranks, and the errors of the others. `unnamed` is for a value that gdb does not print.
fn merge_values(good: &[(Fields, RankSet)], bad: Vec<(String, RankSet)>, unnamed: &str) -> String {
    let value = |fields: &Fields| fields.text("value").unwrap_or(unnamed).to_owned();
    let values = good.iter().map(|(fields, ranks)| (value(fields), ranks.clone()));
    merge_texts(&values.chain(bad).collect::<Vec<_>>())
}

/// The rank whose memory the editor refers to, and the address.
fn place_of(state: &State, client: Client, reference: &str, offset: i64) -> Result<(RankSet, u64), String> {
    let none = || format!("'{reference}' is no address");
    let address = parse_address(reference).ok_or_else(none)?.wrapping_add_signed(offset);
    let ranks = state.clients.get(&client).map(|it| it.ranks.clone()).unwrap_or_default();
    let standing = state.standing().intersection(&ranks);
    let known = state.handles.rank_of(reference).filter(|rank| standing.contains(*rank));
    let rank_there = known.or(standing.first()).ok_or("no rank stands: pause some first")?;
    Ok((rank(rank_there), address))
}

/// Handles `disassemble`.
///
/// # Errors
/// The address is invalid, or no rank is stopped.
pub(crate) fn disassemble(state: &mut State, ticket: Ticket, args: &Disassemble) -> Result<(), String> {
    let (ranks, address) = place_of(state, ticket.client, &args.memory_reference, args.offset)?;
    let count = args.instruction_count.min(MAX_INSTRUCTIONS);
    let offset = args.instruction_offset;
    // The listing must include the instructions behind the offset.
    let behind = u32::try_from(offset.max(0)).unwrap_or(u32::MAX).saturating_add(count);
    let commands = build_disassembly(address, behind.min(2 * MAX_INSTRUCTIONS));
    let then = Then::Respond(ticket, Response::Disassembled { address, offset, count });
    state.push(ranks, Order::Ask(commands), then);
    Ok(())
}

/// Builds the response with the instructions.
pub(crate) fn disassembled(
    state: &mut State,
    ticket: &Ticket,
    (address, offset, count): (u64, i64, u32),
    ranks: &RankSet,
    answers: &[(Answer, RankSet)],
) {
    let lines = lines_of(answers, ranks);
    let good: Vec<Fields> =
        lines.iter().flat_map(|(lines, _)| lines.iter().filter_map(|it| it.clone().ok())).collect();
    let shown = instructions(&good, address, offset, count);
    state.respond(ticket, json!({ "instructions": shown }));
}

/// Handles `readMemory`.
///
/// # Errors
/// The address is invalid, or no rank is stopped.
pub(crate) fn read_memory(state: &mut State, ticket: Ticket, args: &ReadMemory) -> Result<(), String> {
    let (ranks, address) = place_of(state, ticket.client, &args.memory_reference, args.offset)?;
    let count = args.count.min(MAX_READ_BYTES);
    let commands = match count {
        0 => Vec::new(),
        _ => vec![format!("-data-read-memory-bytes {address:#x} {count}")],
    };
    let then = Then::Respond(ticket, Response::Memory { address, asked: args.count });
    state.push(ranks, Order::Ask(commands), then);
    Ok(())
}

/// Builds the response with the bytes.
pub(crate) fn memory(
    state: &mut State,
    ticket: &Ticket,
    (address, asked): (u64, u64),
    ranks: &RankSet,
    answers: &[(Answer, RankSet)],
) {
    let read = only(&lines_of(answers, ranks), 0).ok().and_then(|fields| parse_memory(&fields));
    let (offset, bytes) = read.unwrap_or_default();
    let at = address.wrapping_add(offset);
    let mut body = json!({ "address": format!("{at:#x}"), "data": base64(&bytes) });
    if bytes.is_empty() && asked > 0 {
        body["unreadableBytes"] = asked.into();
    }
    state.respond(ticket, body);
}
