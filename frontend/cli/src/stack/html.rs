//! The tree as a page of its own, without anything from elsewhere: it folds, it is searched, and each class has a colour.

use super::markup::{escaped, hue};
use super::report::Findings;
use super::text::{describe_step, title};
use super::tree::{Stretch, build_tree, count, only_host};

/// Style and script. The page must work as a single file, so it contains both.
const STYLE: &str = "body{font:14px sans-serif;margin:2em;color:#1d2733;background:#fff}\
h1{font-size:1.3em}summary,.leaf{font:13px/1.6 monospace;padding:.1em .4em;border-left:.5em solid #d5dde5;margin:.15em 0}\
details details,details .leaf{margin-left:1.6em}.leaf{margin-left:1.6em}.ranks{color:#51606f}.line{color:#6b7a89}\
mark{background:#ffe08a}.away{display:none}input{font-size:1em;padding:.3em;width:22em}button{font-size:1em;margin-left:.5em}";
const SCRIPT: &str = "const all=[...document.querySelectorAll('[data-text]')];\
const fold=open=>document.querySelectorAll('details').forEach(d=>d.open=open);\
document.getElementById('open').onclick=()=>fold(true);document.getElementById('close').onclick=()=>fold(false);\
document.getElementById('find').oninput=e=>{const word=e.target.value.toLowerCase();all.forEach(n=>n.classList.toggle('away',!!word));\
if(word)all.filter(n=>n.dataset.text.toLowerCase().includes(word)).forEach(n=>{n.querySelectorAll('[data-text]').forEach(c=>c.classList.remove('away'));\
for(let p=n;p;p=p.parentElement){p.classList.remove('away');if(p.tagName==='DETAILS')p.open=true;}});};";

/// The page.
pub(crate) fn write(found: &Findings) -> String {
    let name = escaped(&title(found));
    let mut body = String::new();
    let mut classes = 0;
    for stretch in build_tree(&found.classes) {
        add(&mut body, found, &stretch, &mut classes);
    }
    let unseen = found.unseen();
    if !unseen.is_empty() {
        body.push_str(&format!("<p>not seen: {} [{}]</p>\n", count(&unseen), escaped(&unseen.to_string())));
    }
    for (host, why) in &found.missing {
        body.push_str(&format!("<p>no answer from {}: {}</p>\n", escaped(host), escaped(why)));
    }
    for (file, why) in &found.nameless {
        let lacks = "names of functions are missing";
        body.push_str(&format!("<p>{} {}: {lacks}</p>\n", escaped(file), escaped(why)));
    }
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{name}</title>\n<style>{STYLE}</style></head>\n\
         <body><h1>{name}</h1>\n<p><input id=\"find\" placeholder=\"function, file, library or ranks\" autofocus>\
         <button id=\"open\">unfold all</button><button id=\"close\">fold all</button></p>\n{body}<script>{SCRIPT}</script></body></html>\n"
    )
}

fn add(body: &mut String, found: &Findings, stretch: &Stretch, classes: &mut usize) {
    let steps: Vec<String> = stretch.steps.iter().map(|step| describe_step(step, &found.programs)).collect();
    let host = only_host(&stretch.ranks, &found.hosts).map(|host| format!(" on {host}")).unwrap_or_default();
    let ranks = format!("{}: {}{host}", count(&stretch.ranks), stretch.ranks);
    let text = escaped(&format!("{} {ranks}", steps.join(" ")));
    let shown: Vec<String> = steps.iter().map(|step| escaped(step)).collect();
    let shown = format!("{} <span class=\"ranks\">{}</span>", shown.join(" &rsaquo; "), escaped(&ranks));
    if stretch.calls.is_empty() {
        let colour = hue(*classes);
        *classes += 1;
        body.push_str(&format!(
            "<div class=\"leaf\" data-text=\"{text}\" style=\"border-color:hsl({colour},65%,55%);background:hsl({colour},70%,96%)\">{shown}</div>\n"
        ));
        return;
    }
    body.push_str(&format!("<details open data-text=\"{text}\"><summary>{shown}</summary>\n"));
    for call in &stretch.calls {
        add(body, found, call, classes);
    }
    body.push_str("</details>\n");
}

#[cfg(test)]
mod tests {
    use super::super::classes::tests::class;
    use super::*;

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let classes =
            vec![class(&[("main", 9), ("f<int>", 0)], "3"), class(&[("main", 9), ("MPI_Wait", 0)], "0-2")];
        let nameless = vec![("/opt/<app>".to_owned(), "has changed".to_owned())];
        let page = write(&Findings { samples: 1, classes, nameless, ..Findings::default() });
        assert!(!page.contains("http") && !page.contains("src="), "{page}");
        assert_eq!(page.matches("class=\"leaf\"").count(), 2);
        assert_eq!((page.matches("<details").count(), page.matches("</details>").count()), (1, 1));
        assert!(page.contains("/opt/&lt;app&gt; has changed"), "{page}");
        assert!(page.contains("f&lt;int&gt;") && page.contains("3 ranks: 0-2"), "{page}");
    }
}
