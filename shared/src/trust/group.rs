//! Whether a group has only one user, according to `/etc/group` and `/etc/passwd`.

/// Whether the account with the group's own number is its only member. Source of both formats: group(5), passwd(5).
pub(super) fn is_alone(gid: u32, groups: &str, accounts: &str) -> bool {
    let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
    let number = |field: Option<&String>| field.and_then(|text| text.parse::<u32>().ok());
    let accounts: Vec<Vec<String>> = accounts.lines().map(fields).collect();
    let is_owner = |name: &str| accounts.iter().any(|it| it[0] == name && number(it.get(2)) == Some(gid));
    let listed = groups.lines().map(fields).filter(|group| number(group.get(2)) == Some(gid)).all(|group| {
        let members = group.get(3).map_or("", String::as_str);
        members.split(',').map(str::trim).all(|member| member.is_empty() || is_owner(member))
    });
    // Some systems give root's group to accounts of their own, such as `shutdown`.
    let given = gid == 0
        || accounts.iter().all(|it| number(it.get(3)) != Some(gid) || number(it.get(2)) == Some(gid));
    listed && given
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_private_when_the_files_name_no_other_member() {
        let accounts = "root:x:0:0::/root:/bin/sh\nhalt:x:7:0::/:/bin/true\nme:x:1000:1000::/home/me:/bin/sh\n\
            you:x:1001:100::/home/you:/bin/sh\nthey:x:1002:1001::/:/bin/sh\n\nbroken:x\n";
        let groups = "root:x:0:\nme:x:1000:me\nshared:x:1002:you,they\nwheel:x:1003:\nodd";
        let check = |gid: u32, expected: bool| assert_eq!(is_alone(gid, groups, accounts), expected, "{gid}");
        check(0, true);
        check(1000, true);
        // Another account has it as its primary group.
        check(1001, false);
        // It has members.
        check(1002, false);
        check(1003, true);
        // The files do not know it, but a directory service may.
        check(70_000, true);
        assert!(!is_alone(1000, "me:x:1000:me,you", accounts));
        assert!(!is_alone(0, "root:x:0:you", accounts));
        assert!(is_alone(5, "", ""));
    }
}
