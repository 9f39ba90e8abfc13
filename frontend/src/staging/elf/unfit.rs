//! Why a file cannot be used.

/// Why a file cannot be used, in the loader's words if it has some.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unfit {
    /// It is shorter than its headers claim.
    #[error("file too short")]
    TooShort,
    /// It is not an ELF file.
    #[error("invalid ELF header")]
    NoElf,
    /// Neither program nor library.
    #[error("only ET_DYN and ET_EXEC can be loaded")]
    Type,
    /// A table is misplaced or has impossible values.
    #[error("broken {0}")]
    Broken(&'static str),
    /// It would take more memory than any real file.
    #[error("its tables are too large")]
    TooLarge,
    /// A library has to have a dynamic section.
    #[error("object file has no dynamic section")]
    NoDynamic,
    /// It has no part to load.
    #[error("object file has no loadable segments")]
    NoSegments,
    /// A program in place of a library.
    #[error("a program, not a library")]
    Program,
    /// The system refuses to read it.
    #[error("cannot read file data: {0}")]
    Read(String),
}
