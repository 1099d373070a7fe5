package switchd

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/swordbox/journal"
)

// journalFile is the journal of a switch in a file that is mapped into memory. Writing to it needs
// no system call, and written data survives if the process dies at any time.
type journalFile struct {
	*journal.Journal
	mem []byte
	// renewed is true if the file held no journal of this program and was therefore emptied.
	renewed bool
}

// openJournal opens the journal at path. If there is none, it makes an empty one.
func openJournal(path string) (*journalFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	defer f.Close() // the mapping stays valid after the file is closed
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	r := new(journalFile)
	if info.Size() != journal.Size {
		r.renewed = info.Size() != 0
		if err := errors.Join(f.Truncate(0), f.Truncate(journal.Size)); err != nil {
			return nil, fmt.Errorf("journal: %w", err)
		}
	}
	// The space is allocated now: a store to a mapped page without disk space or memory would end
	// the process (SIGBUS).
	if err := unix.Fallocate(int(f.Fd()), 0, 0, journal.Size); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return nil, fmt.Errorf("journal: %d bytes of %s: %w", journal.Size, path, err)
	}
	r.mem, err = unix.Mmap(int(f.Fd()), 0, journal.Size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	if r.Journal, err = journal.Open(r.mem); err != nil {
		r.renewed = true
		journal.Format(r.mem)
		r.Journal, err = journal.Open(r.mem)
	}
	return r, err
}

// Close unmaps the file. The journal must not be used afterwards.
func (r *journalFile) Close() error {
	if r == nil || r.mem == nil {
		return nil
	}
	mem := r.mem
	r.mem = nil
	return unix.Munmap(mem)
}
