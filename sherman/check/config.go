package check

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/sherman/layout"
)

// Config is a tree to be checked and the way to it.
type Config struct {
	// Super is the superblock of any server of the tree.
	Super layout.Superblock
	// Root is the address of the root page, as the root word has it.
	Root layout.Addr
	// Ends are the first offsets that were never given out, server by server: the allocation words.
	Ends []uint64
	// Read reads bytes of one server's region.
	Read func(addr layout.Addr, buf []byte) error
	// Block is how many bytes are read at once; 0: 64 KiB. It is made a multiple of the page.
	Block int
	// Locks are the lock words that are not free.
	Locks []Lock
	// Unreachable is how many written pages may be led to by nothing: the work of clients that were interrupted in a split.
	// Negative: any number.
	Unreachable int
	// HalfSplits is how many pages may lack their separator in the level above. Negative: any number.
	HalfSplits int
	// DeadLocks is how many locks may have owners that are gone, because nobody has wanted them since. Negative: any number.
	DeadLocks int
	// End, if set, reads a server's allocation word again: somebody may have taken memory since.
	End func(server int) (uint64, error)
	// Want, if set, is what the tree must hold.
	Want *Content
	// Visit, if set, is called for each record in the order of the keys; an error is a problem of kind Value. The value is
	// valid during the call.
	Visit func(key uint64, value []byte) error
}

// Lock is a lock word that is not free.
type Lock struct {
	Server, Index int
	Tag           layout.Tag
	// Alive says that its owner may still come back to release it.
	Alive bool
}

const (
	defaultBlock = 64 << 10
	// maxReads is how often a page that is torn, or that does not fit what was read before, is read.
	maxReads = 20
	// maxStrays is how many pages that nothing leads to are looked for once more.
	maxStrays = 1000
	// maxProblems is how many are told of.
	maxProblems = 20
	// maxLevel bounds the height of a tree: no root is higher.
	maxLevel = 32
)

func (c *Config) withDefaults() (Config, error) {
	out := *c
	if out.Block == 0 {
		out.Block = defaultBlock
	}
	page := out.Super.Shape.Page
	if err := out.Super.Validate(); err != nil {
		return out, err
	}
	out.Block = max(out.Block/page, 1) * page
	switch {
	case out.Read == nil:
		return out, errors.New("check: no way to read the tree")
	case len(out.Ends) != out.Super.Servers:
		return out, fmt.Errorf("check: %d ends of %d servers", len(out.Ends), out.Super.Servers)
	}
	for i, end := range out.Ends {
		// A FETCH_ADD that found no room has taken the word beyond the end.
		out.Ends[i] = max(min(end, out.Super.Len), out.Super.FirstChunk())
	}
	return out, nil
}

// Kind is what is wrong.
type Kind string

// Kinds of problems.
const (
	BadRoot     Kind = "root"        // the root word leads to no page
	BadPage     Kind = "page"        // bytes that should be a page are none
	Torn        Kind = "torn"        // a page stays torn, however often it is read
	Misplaced   Kind = "misplaced"   // a page of another address or another tree
	BadLevel    Kind = "level"       // a child or sibling of the wrong level
	Gap         Kind = "gap"         // ranges of neighbours do not meet, or a level does not span all keys
	Unsorted    Kind = "unsorted"    // records of an internal page in the wrong order
	Duplicate   Kind = "duplicate"   // a key twice
	OutOfRange  Kind = "range"       // a record that is not in the range of its page
	Separator   Kind = "separator"   // a separator that is not the lowest key of its child
	Dangling    Kind = "dangling"    // an address that is none of a page, or of a page that is in no chain
	Unallocated Kind = "unallocated" // a page that nobody took from the server
	DeadLock    Kind = "lock"        // a lock that its owner will never release
	Lost        Kind = "unreachable" // more pages that nothing leads to than there may be
	Unlinked    Kind = "unlinked"    // more pages without a separator than there may be
	WrongKeys   Kind = "content"     // other keys than there must be
	Value       Kind = "value"       // a record that Visit refused
)

// Problem is one thing that is wrong.
type Problem struct {
	Kind Kind
	// At is the page, or where one should be.
	At   layout.Addr
	What string
}

// String says it in words.
func (p Problem) String() string { return fmt.Sprintf("%s at %v: %s", p.Kind, p.At, p.What) }
