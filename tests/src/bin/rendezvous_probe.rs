//! A rank that registers, and checks the data of the others: the data of rank R follows from R. It ends with 0 if all
//! of it was correct.
//!
//! Arguments: `all`, `dies RANK`, `twice`, `items`, `named N`, `multijob SIZES LEVELS`, `meddle`, `late`. The function
//! of the same name describes each.
#![expect(clippy::disallowed_methods, reason = "a test program reads its environment")]

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use gantry_backend::rendezvous::{Data, Limits, Rendezvous, Resource, Standing, subjob_rank};
use gantry_tests::rendezvous::item_of;

type Done = Result<(), Box<dyn Error>>;

const MINUTES: Duration = Duration::from_secs(180);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    // A launcher's ranks have its own variables.
    let rank = ["GANTRY_RANK", "SLURM_PROCID", "PMI_RANK"].iter().find_map(|name| number(name)).unwrap_or(0);
    let size = ["GANTRY_SIZE", "SLURM_NTASKS", "PMI_SIZE"].iter().find_map(|name| number(name)).unwrap_or(1);
    let probe = Probe { rank, size };
    let done = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["all"] => probe.all(),
        ["dies", rank] => probe.dies(rank.parse().expect("a rank")),
        ["twice"] => probe.twice(),
        ["items"] => probe.items(),
        ["named", expected] => probe.named(expected.parse().expect("a number")),
        ["multijob", sizes, levels] => probe.multijob(sizes, levels.parse().expect("a number")),
        ["meddle"] => probe.meddle(),
        ["late"] => probe.late(),
        _ => Err("what?".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(std::io::stderr(), "rank {rank}: {error}"));
            ExitCode::from(9)
        }
    }
}

struct Probe {
    rank: u32,
    size: u32,
}

fn expect(what: bool, why: &str) -> Done {
    if what { Ok(()) } else { Err(why.into()) }
}

impl Probe {
    fn register(&self) -> Result<Rendezvous, Box<dyn Error>> {
        let job = Rendezvous::of_job()?;
        job.register(&item_of(self.rank), MINUTES)?;
        Ok(job)
    }

    /// Checks data of level 1 of an app of so many ranks.
    fn check(data: &Data, size: u32) -> Done {
        let items = data.as_group().ok_or("no group")?;
        expect(items.len() == usize::try_from(size)?, "another number of items")?;
        for (rank, item) in (0..).zip(items) {
            expect(item.as_item() == Some(&item_of(rank)), &format!("another item of rank {rank}"))?;
        }
        Ok(())
    }

    /// Registers, waits for all ranks, and gets the item of the next one. Some ranks get all items.
    fn all(&self) -> Done {
        let job = self.register()?;
        job.wait(MINUTES)?;
        let next = (self.rank + 1) % self.size;
        expect(job.get_item(next, MINUTES)? == item_of(next), "another item")?;
        if self.rank % 64 == 3 {
            let data = job.get_all(MINUTES)?;
            Self::check(&Data::decode(1, &data, Limits::default())?, self.size)?;
        }
        Ok(())
    }

    /// One rank ends before it registers; all others get an error that names it.
    fn dies(&self, rank: u32) -> Done {
        if self.rank == rank {
            return Ok(());
        }
        let job = Rendezvous::of_job()?;
        // It may be broken by now.
        let registered = job.register(&item_of(self.rank), MINUTES);
        let error = job.get_all(MINUTES).err().ok_or("not broken")?;
        for error in registered.err().into_iter().chain([error]) {
            match error {
                gantry_backend::Error::Broken(broken) if broken.member == rank => {}
                other => return Err(format!("not broken by rank {rank}: {other}").into()),
            }
        }
        Ok(())
    }

    fn twice(&self) -> Done {
        let job = self.register()?;
        let error = job.register(b"more", MINUTES).err().ok_or("registered twice")?;
        let named = format!("rank {}", self.rank);
        let refused = matches!(&error, gantry_backend::Error::Refused(why) if why.message().contains(&named));
        expect(refused, &format!("refused otherwise: {error}"))?;
        job.wait(MINUTES)?;
        let first = job.get_item(self.rank, MINUTES)?;
        expect(first == item_of(self.rank), "the second one has replaced the first")
    }

    /// An item is available before all ranks have registered: every rank waits for the previous rank's item, and then
    /// registers.
    fn items(&self) -> Done {
        let job = Rendezvous::of_job()?;
        if let Some(before) = self.rank.checked_sub(1) {
            expect(job.get_item(before, MINUTES)? == item_of(before), "another item")?;
        }
        job.register(&item_of(self.rank), MINUTES)?;
        let missing_item = job.get_item(self.size, MINUTES);
        expect(missing_item.is_err(), "an item without a member")
    }

    /// The first ranks register with a named rendezvous; the others only read it.
    fn named(&self, expected: u32) -> Done {
        let job = Rendezvous::of_job()?;
        let some = job.named("some".parse()?, Some(expected));
        if self.rank < expected {
            some.register(&item_of(self.rank), MINUTES)?;
        }
        let data = some.get_all(MINUTES)?;
        Self::check(&Data::decode(1, &data, Limits::default())?, expected)?;
        let other = job.named("some".parse()?, Some(expected + 1)).wait(MINUTES);
        expect(matches!(other, Err(gantry_backend::Error::Refused(_))), "another number was accepted")?;
        let missing = job.named("missing".parse()?, None).wait(MINUTES);
        expect(matches!(missing, Err(gantry_backend::Error::Refused(_))), "an uncreated one exists")?;
        let list = job.list(MINUTES)?;
        expect(list.len() == 2 && list[0].resource == Resource::Job, "another list")?;
        expect(list[1].standing == Standing::Complete && list[1].registered == expected, "another status")
    }

    /// Level by level: rank 0 of every app registers its app's aggregate with the level above. Then rank 0 of the first
    /// app registers the aggregate of all, and so on upwards. `sizes` are the sizes of all apps in order, separated by
    /// commas.
    fn multijob(&self, sizes: &str, levels: u8) -> Done {
        let sizes: Vec<u32> = sizes.split(',').map(str::parse).collect::<Result<_, _>>()?;
        let subjob = subjob_rank()?;
        expect(std::env::var("GLOBUS_GRAM_SUBJOB_RANK")? == subjob.to_string(), "another subjob's rank")?;
        let job = self.register()?;
        if self.rank != 0 {
            let refused = Rendezvous::of_multijob()?.register(b"0 ", MINUTES);
            expect(matches!(refused, Err(gantry_backend::Error::Refused(_))), "any rank may register above")?;
        }
        let (mut below, mut controls) = (job, self.rank == 0);
        for level in 2..=levels {
            let (above, number) = below.status(MINUTES)?.above.ok_or("nothing above")?;
            let above = below.other(above);
            if controls {
                above.register(&below.get_all(MINUTES)?, MINUTES)?;
            }
            controls &= number == 0;
            expect(above.status(MINUTES)?.level == level, "another level")?;
            if level == 2 {
                let multijob = Rendezvous::of_multijob()?;
                expect(multijob.handle() == above.handle(), "another handle")?;
                let own = multijob.get_item(subjob, MINUTES)?;
                Self::check(&Data::decode(1, &own, Limits::default())?, sizes[usize::try_from(subjob)?])?;
            }
            below = above;
        }
        let all = below.get_all(MINUTES)?;
        let mut data = &Data::decode(levels, &all, Limits::default())?;
        // Further levels have one member each in these tests.
        for _ in 2..levels {
            data = data.get(&[0]).ok_or("no first member")?;
        }
        for (index, size) in sizes.iter().enumerate() {
            Self::check(data.get(&[index]).ok_or("a subjob is missing")?, *size)?;
        }
        Ok(())
    }

    /// Rank 0 registers above while all others try to, again and again.
    fn meddle(&self) -> Done {
        let job = self.register()?;
        let above = Rendezvous::of_multijob()?;
        if self.rank == 0 {
            return Ok(above.register(&job.get_all(MINUTES)?, MINUTES)?);
        }
        while above.status(MINUTES)?.standing == Standing::Open {
            let refused = above.register(b"0 ", MINUTES);
            expect(matches!(refused, Err(gantry_backend::Error::Refused(_))), "any rank may register above")?;
        }
        Ok(())
    }

    /// A call after completion gets the data at once.
    fn late(&self) -> Done {
        let job = self.register()?;
        job.wait(MINUTES)?;
        for _ in 0..3 {
            let data = job.subscribe(MINUTES)?.wait()?;
            Self::check(&Data::decode(1, &data, Limits::default())?, self.size)?;
        }
        Ok(())
    }
}
