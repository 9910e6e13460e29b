//! A signal stops a run, which saves its progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use restow_lab::{Action, Seen};
use rustix::process::Signal;

use crate::expected::{kept, outdated, rewritten_once, signal, verified};
use crate::support::{Lab, Restow, name, wait};
use crate::traffic::{Traffic, ended, number};

scenarios! {
    a_signal_stops_the_run_and_saves_its_progress,
    a_second_signal_stops_the_run_at_once,
    a_signal_stops_a_run_whose_server_does_not_answer,
}

async fn a_signal_stops_the_run_and_saves_its_progress(lab: Lab) {
    const OBJECTS: usize = 400;
    const PAGE: usize = 50;
    let cluster = lab.shared();
    let widgets = outdated(cluster, "signals", OBJECTS).await;
    let (recorder, traffic) = Traffic::record(cluster, |_, _| Action::Forward).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let flags = ["--pace", "fast", "--page-size", "50"];
    let resume = [&flags[..], &["--resume"]].concat();
    for (stop, flags, patches, phase) in [
        (Signal::INT, &flags[..], 120, "rewriting"),
        (Signal::TERM, &resume[..], 240, "rewriting"),
        (Signal::INT, &resume[..], OBJECTS + 2 * PAGE + 120, "verifying"),
    ] {
        let mut child = restow.start(&widgets.name(), flags);
        traffic.reach(patches, &mut child).await;
        signal(&child, stop);
        let told = Instant::now();
        let ran = ended(child).await.expect(130);
        assert!(told.elapsed() < Duration::from_secs(10), "{:?}", told.elapsed());
        assert!(ran.stderr.contains("stopping"), "{ran:#?}");
        let command = format!("migrate {} --resume", widgets.name());
        assert!(ran.stdout.contains("stopped") && ran.stdout.contains(&command), "{ran:#?}");
        assert_eq!(restow.progress(&widgets.name()).unwrap()["phase"], phase);
    }
    let report = verified(restow.migrate(&widgets.name(), &resume).await, OBJECTS);
    assert_eq!(report["listed"], OBJECTS, "{report}");
    assert!(traffic.patches() <= 2 * OBJECTS + 3 * PAGE, "{}", traffic.patches());
    rewritten_once(cluster, &widgets, OBJECTS).await;
}

/// After the first ctrl-C restow waits for a write without an answer; after the second it does not.
async fn a_second_signal_stops_the_run_at_once(lab: Lab) {
    const OBJECTS: usize = 60;
    let cluster = lab.shared();
    let widgets = outdated(cluster, "impatience", OBJECTS).await;
    let rule = |seen: &Seen, before: usize| match number(seen) {
        Some(30) if before == 0 => Action::Wait(Box::pin(std::future::pending())),
        _ => Action::Forward,
    };
    let (recorder, traffic) = Traffic::record(cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let said = restow.state.path().join("stderr");
    let mut child = restow
        .command(&["migrate", &widgets.name(), "--page-size", "20"])
        .stderr(std::fs::File::create(&said).unwrap())
        .spawn()
        .unwrap();
    wait("the write to be held", || async { !traffic.patches_of(&name(30)).is_empty() }).await;
    signal(&child, Signal::INT);
    wait("restow to say that it stops", || async {
        std::fs::read_to_string(&said).unwrap().contains("ctrl-C again")
    })
    .await;
    assert!(child.try_wait().unwrap().is_none(), "it did not wait for what is under way");
    signal(&child, Signal::INT);
    let told = Instant::now();
    ended(child).await.expect(130);
    assert!(told.elapsed() < Duration::from_secs(5), "{:?}", told.elapsed());
    verified(restow.migrate(&widgets.name(), &["--resume"]).await, OBJECTS);
    rewritten_once(cluster, &widgets, OBJECTS).await;
}

/// restow does not wait for reads: a server that hangs between two pages does not delay ctrl-C.
async fn a_signal_stops_a_run_whose_server_does_not_answer(lab: Lab) {
    const OBJECTS: usize = 60;
    let cluster = lab.shared();
    let widgets = outdated(cluster, "hangs", OBJECTS).await;
    let hung = Arc::new(AtomicBool::new(false));
    let (patches, hangs) = (AtomicUsize::new(0), Arc::clone(&hung));
    let rule = move |seen: &Seen, _: usize| {
        let sent = patches.fetch_add(usize::from(number(seen).is_some()), Ordering::SeqCst);
        if sent < 20 || number(seen).is_some() {
            return Action::Forward;
        }
        hangs.store(true, Ordering::SeqCst);
        Action::Wait(Box::pin(std::future::pending()))
    };
    let (recorder, _traffic) = Traffic::record(cluster, rule).await;
    let restow = Restow::new(cluster);
    let through = recorder.kubeconfig().to_str().unwrap();
    let mut child = restow.start(&widgets.name(), &["--kubeconfig", through, "--page-size", "20"]);
    kept(&restow, &widgets, "counts", 20, &mut child).await;
    wait("the server to hang", || async { hung.load(Ordering::SeqCst) }).await;
    signal(&child, Signal::INT);
    let told = Instant::now();
    let ran = ended(child).await.expect(130);
    assert!(told.elapsed() < Duration::from_secs(10), "{:?}", told.elapsed());
    assert!(ran.stdout.contains("--resume"), "{ran:#?}");
    verified(restow.migrate(&widgets.name(), &["--resume"]).await, OBJECTS);
    rewritten_once(cluster, &widgets, OBJECTS).await;
}
