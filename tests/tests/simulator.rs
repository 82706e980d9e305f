//! `host simulate` as a process.

use std::net::TcpStream;
use std::time::Duration;

use harness::Simulator;
use harness::process::wait_until;

#[test]
fn a_line_is_started_disturbed_paused_and_ended() -> anyhow::Result<()> {
    let line = Simulator::start(&["--speed", "20", "--paused"])?;
    assert_eq!((line.truth()?.len(), line.truth()?.values().sum::<u64>()), (12, 0));
    line.resume()?;
    wait_until("100 units are made", Duration::from_secs(60), || Ok(line.truth()?.values().sum::<u64>() >= 100))?;
    line.fault("FILL01", "good", "reset", 0, 0)?;
    let refused = line.fault("FILL09", "good", "reset", 0, 0).map_err(|e| e.to_string());
    assert!(refused.as_ref().is_err_and(|e| e.contains("there is no machine")), "{refused:?}");
    line.server_down(1)?;
    line.pause()?;
    let truth = line.truth()?;
    assert_eq!(line.truth()?, truth);

    let control = line.control_url().trim_start_matches("http://").to_owned();
    drop(line);
    assert!(TcpStream::connect(control).is_err(), "nothing is left of it");
    Ok(())
}
