package rack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/rackfile"
)

// lockWait bounds how long a program waits for another program that changes the rack.
const lockWait = 15 * time.Second

// lockPoll is the pause between two attempts to take the lock.
const lockPoll = 5 * time.Millisecond

// lock is the rack's lock, held by flock on a file beside the rack's tmpfs. The controller that
// takes the rack down removes the file.
type lock struct {
	paths rackfile.Paths
	f     *os.File
}

// acquire waits for the rack's lock and takes it. It makes the folder of the lock file if needed.
func acquire(ctx context.Context, paths rackfile.Paths) (*lock, error) {
	deadline := time.Now().Add(lockWait)
	for {
		l, err := tryLock(paths)
		if l != nil || err != nil {
			return l, err
		}
		if time.Now().After(deadline) {
			return nil, ErrBusy
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lockPoll):
		}
	}
}

// Lock takes the lock beside the folder of paths, as the commands that change a rack do, and returns what
// releases it; with remove, that also removes the lock file. ErrBusy means that another program holds it.
func Lock(ctx context.Context, paths rackfile.Paths) (release func(remove bool) error, err error) {
	l, err := acquire(ctx, paths)
	if err != nil {
		return nil, err
	}
	return l.release, nil
}

// tryLock tries to take the lock. It returns nil, nil if another program holds the lock or has just
// removed its file.
func tryLock(paths rackfile.Paths) (*lock, error) {
	if err := os.MkdirAll(filepath.Dir(paths.Lock()), 0o755); err != nil {
		return nil, explain(err)
	}
	f, err := os.OpenFile(paths.Lock(), os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // another program has just removed the folder with the last rack
	}
	if err != nil {
		return nil, explain(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, f.Close()
		}
		return nil, errors.Join(fmt.Errorf("lock %s: %w", paths.Lock(), err), f.Close())
	}
	// Another controller may have taken the rack down meanwhile, and removed the file that is open
	// here.
	var held, there unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &held); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if err := unix.Stat(paths.Lock(), &there); err != nil || there.Ino != held.Ino || there.Dev != held.Dev {
		return nil, f.Close()
	}
	return &lock{paths: paths, f: f}, nil
}

// release releases the lock. If remove is true, it also removes the lock file and, if no other rack
// is left, its folder.
func (l *lock) release(remove bool) error {
	var err error
	if remove {
		err = ignoreMissing(os.Remove(l.paths.Lock()))
		_ = unix.Rmdir(filepath.Dir(l.paths.Lock())) // the folder stays while there are other racks
	}
	return errors.Join(err, l.f.Close())
}

// privilege returns err with the advice to use sudo, if it is an error for lack of permission.
func privilege(err error) error {
	if errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EROFS) && os.Geteuid() != 0 {
		return fmt.Errorf("%w (%w)", ErrPrivilege, err)
	}
	return err
}
