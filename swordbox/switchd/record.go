package switchd

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/swordbox/record"
)

// recordFile is the record of a switch in a file: mapped into memory, so that writing to it costs no system call and what
// was written is there when the process has died at any instant.
type recordFile struct {
	*record.Record
	mem []byte
	// renewed says that the file was none of this program's and was made anew.
	renewed bool
}

// openRecord opens the record at path, or makes an empty one.
func openRecord(path string) (*recordFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	defer f.Close() // the mapping outlives it
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	r := new(recordFile)
	if info.Size() != record.Size {
		r.renewed = info.Size() != 0
		if err := errors.Join(f.Truncate(0), f.Truncate(record.Size)); err != nil {
			return nil, fmt.Errorf("record: %w", err)
		}
	}
	// Now, because a store to a page for which there is no memory ends the process.
	if err := unix.Fallocate(int(f.Fd()), 0, 0, record.Size); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return nil, fmt.Errorf("record: %d bytes of %s: %w", record.Size, path, err)
	}
	r.mem, err = unix.Mmap(int(f.Fd()), 0, record.Size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	if r.Record, err = record.Open(r.mem); err != nil {
		r.renewed = true
		record.Format(r.mem)
		r.Record, err = record.Open(r.mem)
	}
	return r, err
}

// Close gives the memory back. The record must not be used any more.
func (r *recordFile) Close() error {
	if r == nil || r.mem == nil {
		return nil
	}
	mem := r.mem
	r.mem = nil
	return unix.Munmap(mem)
}
