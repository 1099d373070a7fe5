package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// pidBits is how many bits of a PID count the processes of one incarnation of the NIC. The other
// bits are the number of the incarnation, so that no PID is used again while a key for this PID may
// exist.
const pidBits = 16

// maxEpoch is the largest number of an incarnation.
const maxEpoch = 1<<(32-pidBits) - 1

// nextEpoch returns the number of a new incarnation of a NIC, and stores it in the file as the last
// one that was used. The file is on disk when nextEpoch returns, so no later incarnation gets the
// number, even after a crash of the daemon: a message counter must not be used twice under one key.
// When the rack is taken down, the file is removed. No key exists then any more.
func nextEpoch(path string) (uint32, error) {
	n := uint64(1)
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return 0, fmt.Errorf("1RMA: %w", err)
	default:
		last, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 32)
		if err != nil {
			return 0, fmt.Errorf("1RMA: %s has %.40q instead of the number of the last incarnation: take the rack down and up again", path, data)
		}
		n = last + 1
	}
	if n > maxEpoch {
		return 0, fmt.Errorf("1RMA: the NIC was started %d times, more would repeat initialisation vectors: take the rack down and up again", maxEpoch)
	}
	if err := replaceFile(path, strconv.FormatUint(n, 10)+"\n"); err != nil {
		return 0, fmt.Errorf("1RMA: number of the incarnation: %w", err)
	}
	return uint32(n), nil
}

// replaceFile writes a file, so that path has either the old content or the new one at any time.
func replaceFile(path, text string) (err error) {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
