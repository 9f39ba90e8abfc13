//! Strings stored once and named by small numbers: an app of a million ranks has few hosts and fewer executables.

use std::{collections::HashMap, fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Different strings, each with its index, in the order in which they came. Serialised as their list.
#[derive(Clone, Default)]
pub struct StringTable {
    strings: Vec<Arc<str>>,
    indices: HashMap<Arc<str>, u32>,
}

impl StringTable {
    /// The empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The index of a string, which is added when it is new; `None` when 2^32 - 1 others are there already.
    pub fn intern(&mut self, string: &str) -> Option<u32> {
        if let Some(index) = self.find(string) {
            return Some(index);
        }
        let index = u32::try_from(self.strings.len()).ok().filter(|&index| index < u32::MAX)?;
        let string: Arc<str> = string.into();
        self.strings.push(Arc::clone(&string));
        self.indices.insert(string, index);
        Some(index)
    }

    /// The index of a string, when it is there.
    #[must_use]
    pub fn find(&self, string: &str) -> Option<u32> {
        self.indices.get(string).copied()
    }

    /// The string of an index, when it has one.
    #[must_use]
    pub fn get(&self, index: u32) -> Option<&str> {
        self.strings.get(index as usize).map(|string| &**string)
    }

    /// How many strings there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.strings.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.strings.is_empty()
    }

    /// The strings, by ascending index.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.strings.iter().map(|string| &**string)
    }
}

impl PartialEq for StringTable {
    fn eq(&self, other: &Self) -> bool {
        self.strings == other.strings
    }
}

impl Eq for StringTable {}

impl fmt::Debug for StringTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Serialize for StringTable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for StringTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Strings;
        impl<'de> de::Visitor<'de> for Strings {
            type Value = StringTable;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of different strings")
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<StringTable, A::Error> {
                let mut table = StringTable::new();
                while let Some(string) = list.next_element::<String>()? {
                    let expected = table.len();
                    // A repeated string would get the index of the first, and shift all that follow.
                    if table.intern(&string).is_none_or(|index| index as usize != expected) {
                        return Err(de::Error::custom(format!(
                            "the string {string:?} occurs twice in a table"
                        )));
                    }
                }
                Ok(table)
            }
        }
        deserializer.deserialize_seq(Strings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_has_one_index_however_often_it_comes() {
        let mut table = StringTable::new();
        assert!(table.is_empty());
        let indices: Vec<_> = ["n1", "n2", "n1", ""].iter().map(|string| table.intern(string)).collect();
        assert_eq!(indices, [Some(0), Some(1), Some(0), Some(2)]);
        assert_eq!((table.len(), table.get(1), table.get(3)), (3, Some("n2"), None));
        assert_eq!((table.find("n2"), table.find("n3")), (Some(1), None));
        assert_eq!(format!("{table:?}"), r#"["n1", "n2", ""]"#);
    }

    #[test]
    fn a_table_travels_as_a_list_without_repetition() {
        let json = r#"["n1","n2"]"#;
        let table: StringTable = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&table).unwrap(), json);
        assert_eq!(table.find("n2"), Some(1));
        let error = serde_json::from_str::<StringTable>(r#"["n1","n1"]"#).unwrap_err();
        assert!(error.to_string().contains(r#""n1" occurs twice"#), "{error}");
    }
}
