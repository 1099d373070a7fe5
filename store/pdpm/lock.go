package pdpm

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/lease"
	"github.com/rdmalab/rdmalab/store/passive"
)

// errDamaged says that neither copy of an entry is whole. No client leaves an entry in this state,
// even if it dies.
var errDamaged = errors.New("the memory is damaged: neither copy of a value is whole")

// watch is what a client has seen of a lock word while it waits for the lock.
type watch struct {
	lease.Watch[tag]
	tries int // number of calls of pause
}

// stuck notes that a request, which was sent at the time `asked`, has found the lock word t. It
// reports whether the word certainly has had this tag for longer than `lease`. The time between
// `asked` and `now`, when the client reads the answer, does not count: if the client's host was
// stopped in between, the holder may have released the lock long ago.
func (w *watch) stuck(t tag, asked, now clock.Time, lease time.Duration) bool {
	return w.Seen(t, asked, now) > lease && t != 0
}

// maxPause is the longest pause between two attempts.
const maxPause = 64 * time.Microsecond

// pause waits before the next attempt. The first two calls do not wait. Later ones wait for a
// random time, whose limit doubles up to maxPause.
func (w *watch) pause(rt interface{ Sleep(d time.Duration) }, random func(n int64) int64) {
	if w.tries++; w.tries > 2 {
		rt.Sleep(time.Duration(random(int64(min(maxPause, time.Microsecond<<min(w.tries, 10))))))
	}
}

// lock takes the lock of an entry. It fills `head` with the first bytes of the copy in place, the
// one of the entry's two copies that readers use. This copy is whole when the client gets the lock.
// If lock fails, the key is not changed.
func (c *Client) lock(e entry, key uint64, head []byte, deadline clock.Time) (tag, error) {
	c.locks++
	own := makeTag(c.Conn.Owner(), c.locks)
	rt := c.Conn.Runtime()
	defer rt.Leave(rt.Enter(kv.PhaseLock))
	for w := (watch{}); ; c.Retries++ {
		asked := rt.Now()
		got, sent, err := c.Conn.SwapRead(e.server, e.at, 0, uint64(own), e.at+lockLen, head, deadline)
		found := tag(got)
		switch {
		case err != nil:
			c.stray = c.stray || sent > 0
			return 0, err
		case found == 0 || found == own:
			c.Conn.Hold(e.server, e.at, uint64(own))
			return own, nil
		case w.stuck(found, asked, rt.Now(), c.shape.Lease):
			took, err := c.takeOver(e, key, found, own, deadline)
			if err != nil {
				return 0, err
			}
			if took {
				copy(head, c.buf[lockLen:])
				return own, nil
			}
		case rt.Now() >= deadline:
			return 0, kv.ErrTimeout
		}
		w.pause(rt, rt.Rand().Int64N)
	}
}

// takeOver takes the lock from a holder whose word has not changed for a lease, and restores the
// entry. took is false if the word has changed meanwhile. If took is true, c.buf has the entry.
func (c *Client) takeOver(e entry, key uint64, from, own tag, deadline clock.Time) (took bool, err error) {
	got, sent, err := c.Conn.TakeOver(e.server, e.at, uint64(from), uint64(own), from.owner(), deadline)
	if err != nil {
		c.stray = c.stray || sent > 0
		return false, err
	}
	if found := tag(got); found != from && found != own {
		return false, nil
	}
	c.Conn.Hold(e.server, e.at, uint64(own))
	if err := c.restore(e, key, deadline); err != nil {
		c.leave()
		return false, err
	}
	return true, nil
}

// restore completes the change of the lock's previous holder if the redo copy is whole. If the redo
// copy is torn, that holder has not touched the copy in place.
func (c *Client) restore(e entry, key uint64, deadline clock.Time) error {
	n := c.shape.copyLen()
	if err := c.read(e, lockLen+2*n, deadline); err != nil {
		return err
	}
	place, redo := c.buf[lockLen:lockLen+n], c.buf[lockLen+n:]
	_, whole := valueOf(place, key)
	_, ready := valueOf(redo, key)
	switch {
	case !whole && !ready:
		return errDamaged
	case !ready || whole && tagOf(place) == tagOf(redo):
		return nil
	}
	copy(place, redo)
	return c.Conn.Write(e.server, e.at+lockLen, place, deadline)
}

// read fills buf with the first n bytes of an entry.
func (c *Client) read(e entry, n int, deadline clock.Time) error {
	if cap(c.buf) < n {
		c.buf = make([]byte, n)
	}
	c.buf = c.buf[:n]
	return c.Conn.Read(e.server, e.at, c.buf, deadline)
}

// unlock releases a lock after the change under the lock was made. If the WRITE that releases the
// lock fails, the change stays, and another client takes the lock over later.
func (c *Client) unlock(e entry, deadline clock.Time) {
	var free [lockLen]byte
	if err := c.Conn.Write(e.server, e.at, free[:], deadline); err != nil && !errors.Is(err, passive.ErrPassed) {
		c.stray = true
	}
	c.Conn.Hold(0, 0, 0)
}

// leave abandons a lock without releasing it. Another client will take it over.
func (c *Client) leave() {
	c.Conn.Hold(0, 0, 0)
	c.stray = true
}

// refused reports whether an error says that another client has taken the lock over, or has fenced
// this client. Then this client needs another number.
func refused(err error) bool {
	return errors.Is(err, memservice.ErrFenced) || errors.Is(err, passive.ErrPassed)
}

// lockOf returns the lock word of an entry that was read into b.
func lockOf(b []byte) tag { return tag(binary.LittleEndian.Uint64(b)) }
