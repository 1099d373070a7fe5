package check

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/sherman/layout"
)

// Config describes a tree to be checked and how to read it.
type Config struct {
	// Super is the superblock of any server of the tree.
	Super layout.Superblock
	// Root is the address of the root page, as the root word has it.
	Root layout.Addr
	// Ends are, by server, the offsets at which the allocated memory ends: the allocation words.
	Ends []uint64
	// Read reads len(buf) bytes at addr in one server's region.
	Read func(addr layout.Addr, buf []byte) error
	// Block is the number of bytes of one READ, rounded down to whole pages; 0 means 64 KiB.
	Block int
	Locks []Lock
	// Unreachable is how many written pages may be unreachable. A client that is interrupted during
	// a split leaves a page that no page names. A negative value allows any number.
	Unreachable int
	// HalfSplits is how many pages may have no separator in the level above. A negative value
	// allows any number.
	HalfSplits int
	// DeadLocks is how many locks may have dead owners. Such a lock stays held until another client
	// takes it over. A negative value allows any number.
	DeadLocks int
	// End, if set, reads a server's allocation word again. Clients may have taken memory since Ends
	// were read.
	End func(server int) (uint64, error)
	// Want, if set, is the digest of the keys that the tree must hold.
	Want *Content
	// Visit, if set, is called for each record, in the order of the keys. An error becomes a
	// problem of kind Value. The value is valid only during the call.
	Visit func(key uint64, value []byte) error
}

// Lock is a lock word that is not free.
type Lock struct {
	Server, Index int
	Tag           layout.Tag
	// Alive is true if the owner can still release the lock.
	Alive bool
}

const (
	defaultBlock = 64 << 10
	// maxReads is how many times at most the check reads a page that is torn, or that does not fit
	// the pages read before it.
	maxReads = 20
	// maxChecks is how many times at most Check checks a tree in which pages are being merged.
	maxChecks = 4
	// maxStrays is the largest number of unreachable pages for which secondLook reads the left
	// neighbours again.
	maxStrays = 1000
	// maxProblems is the number of problems that a report describes.
	maxProblems = 20
	// maxLevel is the greatest level that a root may have.
	maxLevel = 32
)

func (c *Config) withDefaults() (Config, error) {
	out := *c
	out.Block = cmp.Or(out.Block, defaultBlock)
	page := out.Super.Shape.Page
	if err := out.Super.Validate(); err != nil {
		return out, err
	}
	out.Block = max(out.Block/page, 1) * page
	switch {
	case out.Read == nil:
		return out, errors.New("check: Read is required")
	case len(out.Ends) != out.Super.Servers:
		return out, fmt.Errorf("check: %d allocation ends for %d servers", len(out.Ends), out.Super.Servers)
	}
	for i, end := range out.Ends {
		// A FETCH_ADD that finds no room moves the allocation word beyond the end of the memory.
		out.Ends[i] = max(min(end, out.Super.Len), out.Super.FirstChunk())
	}
	return out, nil
}

// Kind is the kind of a problem.
type Kind string

// Kinds of problems.
const (
	BadRoot     Kind = "root"        // the root word names no page
	BadPage     Kind = "page"        // bytes at the address of a page are not a page
	Torn        Kind = "torn"        // a page is torn in every READ
	Misplaced   Kind = "misplaced"   // a page with the header of another address or tree
	BadLevel    Kind = "level"       // a child or sibling of the wrong level
	Gap         Kind = "gap"         // ranges of neighbours do not meet, or a level does not cover all keys
	Unsorted    Kind = "unsorted"    // records of an internal page in the wrong order
	Duplicate   Kind = "duplicate"   // a key that occurs twice
	OutOfRange  Kind = "range"       // a record that is not in the range of its page
	Separator   Kind = "separator"   // a separator that is not the lowest key of its child
	Gone        Kind = "gone"        // a pointer to a page that has left the tree
	Dangling    Kind = "dangling"    // an address where no page can be
	Unallocated Kind = "unallocated" // a page in memory that is not allocated
	DeadLock    Kind = "lock"        // a lock whose owner is dead
	Lost        Kind = "unreachable" // pages that no page names: more than Config allows
	Unlinked    Kind = "unlinked"    // pages without a separator: more than Config allows
	WrongKeys   Kind = "content"     // the digest of the keys differs from Config.Want
	Value       Kind = "value"       // a record for which Visit returned an error
)

// Problem is one defect of the tree.
type Problem struct {
	Kind Kind
	// At is the address of the page, or the address at which a page is missing.
	At   layout.Addr
	What string
}

func (p Problem) String() string { return fmt.Sprintf("%s at %v: %s", p.Kind, p.At, p.What) }
