package scenario

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/sim/history"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Bounds of a client's attempts to take one lock: their number, the first and the longest pause
// between two of them (the pause doubles each time), and the time after which the client gives up.
const (
	maxTries    = 3000
	firstPause  = 4 * time.Microsecond
	longPause   = 4 * time.Millisecond
	lockHopeful = 10 * time.Second
)

// work does the rounds of a client. Each round uses one random word, in the way that the word's
// kind requires.
func (c *lockClient) work(ctx verbs.Context) error {
	c.ctx, c.rt = ctx, ctx.Runtime()
	for c.done < c.rounds && c.rt.Now() < lockPatience {
		w := c.run.words[one(c.draw, 0, 0, 1, 1, 2, 3)]
		var err error
		switch w.kind {
		case tagLock, bitLock:
			err = c.lockRound(w)
		case counter:
			err = c.countRound(w)
		case register:
			err = c.registerRound(w)
		}
		c.has, c.wants = nil, nil
		if errors.Is(err, errPatience) {
			break
		}
		if err != nil && !errors.Is(err, errMemoryLost) {
			return fmt.Errorf("client %d, %s: %w", c.id, w.name(), err)
		}
		c.done++
		c.rt.Sleep(c.draw.span(0, 10*time.Microsecond))
	}
	c.finished = c.done == c.rounds
	return nil
}

// stamp makes a random number that no client has used, and records in run.stamps that it is this
// client's, for the word w.
func (c *lockClient) stamp(w *lockWord) uint64 {
	for {
		v := c.draw.Uint64()
		if _, used := c.run.stamps[v]; v > 1 && !used {
			c.run.stamps[v] = holder{client: c, word: w, node: 8 * c.draw.between(1, nodeMax/8)}
			return v
		}
	}
}

// lockRound takes lock w, reads and writes the node that it protects, and releases it.
func (c *lockClient) lockRound(w *lockWord) error {
	c.wants = w
	stamp, err := c.acquire(w)
	if err != nil || stamp == 0 {
		return err
	}
	c.grants++
	k, err := c.connect(w.server)
	if err != nil {
		return err
	}
	c.has, c.hasEpoch = w, k.words[w].epoch
	if err := c.inside(w, stamp); err != nil {
		return err
	}
	return c.leave(w, stamp)
}

// value returns the value of the lock word while the client with this stamp has the lock.
func (w *lockWord) value(stamp uint64) uint64 {
	if w.kind == bitLock {
		return 1
	}
	return stamp
}

// acquire tries to take the lock and returns the stamp with which the client has it, or 0 if the
// client has not got it. An attempt whose answer was lost may have succeeded. So the next attempt
// uses another stamp: if it finds the earlier stamp in the word, the earlier attempt has succeeded.
func (c *lockClient) acquire(w *lockWord) (uint64, error) {
	stamp, free := c.stamp(w), uint64(0)
	pause, until := firstPause, c.rt.Now().Add(lockHopeful)
	for try := 0; try < maxTries && c.rt.Now() < until; try++ {
		if c.draw.chance(0.1) { // in one of ten attempts, the client READs the lock first, as many protocols do
			if _, err := c.one(w.get(wordOff, 8)); err != nil {
				return 0, err
			}
		}
		r, err := c.one(w.cas(free, w.value(stamp)))
		switch {
		case err != nil:
			return 0, err
		case !r.ok && w.kind == bitLock:
			w.contested = true // it is unknown whether this client has got the lock
			return 0, nil
		case !r.ok:
			stamp = c.stamp(w)
		case r.value == free:
			return stamp, nil
		case w.kind == tagLock && c.run.stamps[r.value].client == c:
			return r.value, nil // an earlier attempt, whose answer was lost, has succeeded
		default:
			free = c.heir(w, r.value)
			c.rt.Sleep(c.draw.span(pause/2, pause))
			pause = min(longPause, 2*pause)
			if w.contested && try > 10 {
				return 0, nil
			}
		}
	}
	if !w.contested {
		c.starved++
	}
	return 0, nil
}

// heir returns the value with which the next CAS compares, after a CAS has found value: 0, which
// means a free lock, unless value is the tag of a dead owner. In this case heir waits until the
// owner has been dead for the time mourning, and returns value, so that the client takes the lock
// over.
func (c *lockClient) heir(w *lockWord, value uint64) uint64 {
	h, ok := c.run.stamps[value]
	if w.kind != tagLock || !ok || !h.client.dead {
		return 0
	}
	if until := h.client.diedAt.Add(mourning); c.rt.Now() < until {
		c.rt.Sleep(until.Sub(c.rt.Now()))
	}
	c.run.inherited++
	return value
}

// sure repeats a request until its answer is known. It is used only for requests that do no harm
// when they are executed twice.
func (c *lockClient) sure(r request) (reply, error) {
	for {
		out, err := c.one(r)
		if err != nil || out.ok {
			return out, err
		}
	}
}

// inside is called while the client holds the lock of w. It writes the client's stamp into the
// guard of w (see guardian), and READs the node, which is the data that the lock protects. The READ
// must return what the server's memory has: the node that the last holder has written.
func (c *lockClient) inside(w *lockWord, stamp uint64) error {
	if _, err := c.sure(w.mark(stamp)); err != nil {
		return err
	}
	n := 8 * c.draw.between(1, nodeMax/8)
	r, err := c.sure(request{word: w, off: nodeOff, n: n})
	if err != nil {
		return err
	}
	now := c.run.scratch[:n]
	if w.epoch == c.hasEpoch && w.node(now) && string(now) != string(r.bytes) && !w.lost {
		return fmt.Errorf("a READ of the node inside of the lock differs from the memory")
	}
	if c.draw.chance(0.3) {
		c.rt.Sleep(c.draw.span(0, 5*time.Microsecond))
	}
	return nil
}

// leave writes the node, clears the guard and releases the lock: in several steps, or with one
// doorbell for all requests (Sherman's combination of commands).
func (c *lockClient) leave(w *lockWord, stamp uint64) error {
	node := make([]byte, c.run.stamps[stamp].node)
	fillNode(node, stamp)
	steps := []request{w.writeNode(node), w.mark(0)}
	release := w.cas(w.value(stamp), 0)
	if c.draw.chance(0.6) && !c.run.polite {
		release = w.put(0)
		release.inline = c.draw.chance(0.5)
	}
	if c.draw.chance(0.4) {
		for _, s := range steps {
			if _, err := c.sure(s); err != nil {
				return err
			}
		}
		steps = nil
	}
	r, err := c.do(w.server, append(steps, release)...)
	if err != nil {
		return err
	}
	switch last := r[len(r)-1]; {
	case last.ok && release.Kind == history.CmpSwap && last.value != w.value(stamp):
		return fmt.Errorf("release by CAS found %#x, the holder's is %#x", last.value, w.value(stamp))
	case last.ok:
		return nil
	case w.kind == bitLock:
		w.contested = true // it is unknown whether this client still has the lock
		return nil
	}
	return c.releaseAgain(w, stamp, node)
}

// releaseAgain is called when the answer to a release was lost. If the word still has this client's
// tag, which no other client uses, the release was not executed, and releaseAgain repeats it.
func (c *lockClient) releaseAgain(w *lockWord, stamp uint64, node []byte) error {
	r, err := c.sure(w.cas(stamp, stamp))
	if err != nil || r.value != stamp {
		return err
	}
	for _, s := range []request{w.mark(stamp), w.writeNode(node), w.mark(0)} {
		if _, err := c.sure(s); err != nil {
			return err
		}
	}
	_, err = c.sure(w.cas(stamp, 0))
	return err
}

// countRound posts several FETCH_ADDs of random numbers, and some READs, to a counter with one
// doorbell.
func (c *lockClient) countRound(w *lockWord) error {
	reqs := make([]request, c.draw.between(1, lockDepth))
	for i := range reqs {
		reqs[i] = w.add(c.draw.Uint64() >> c.draw.between(0, 63))
		if c.draw.chance(0.1) {
			reqs[i] = w.get(wordOff, 8)
			reqs[i].fence = true
		}
	}
	_, err := c.do(w.server, reqs...)
	return err
}

// registerRound posts several random operations on a word with one doorbell.
func (c *lockClient) registerRound(w *lockWord) error {
	reqs := make([]request, c.draw.between(1, 4))
	guess := w.lastSeen
	for i := range reqs {
		d := c.draw
		what := d.IntN(7)
		if c.run.polite && what >= 3 && what <= 5 {
			what = 2
		}
		switch what {
		case 0, 1:
			reqs[i] = w.cas(guess, d.Uint64())
			guess = reqs[i].Value
		case 2:
			reqs[i] = w.add(d.Uint64())
		case 3:
			reqs[i] = w.put(d.Uint64())
			reqs[i].inline = d.chance(0.5)
			guess = reqs[i].Value
		case 4:
			reqs[i] = c.around(w)
		case 5:
			reqs[i] = w.half(d)
		default:
			reqs[i] = w.get(wordOff, 8)
			if d.chance(0.5) {
				reqs[i] = w.get(wordOff-8*d.between(0, 60), 8*d.between(61, 120))
			}
		}
	}
	r, err := c.do(w.server, reqs...)
	if err == nil && r[len(r)-1].ok {
		w.lastSeen = reqs[len(reqs)-1].Apply(r[len(r)-1].value)
	}
	return err
}

// around returns a WRITE of many bytes around and over the word, in one or several packets.
func (c *lockClient) around(w *lockWord) request {
	before, after := 8*c.draw.between(0, 100), 8*c.draw.between(1, 100)
	b := make([]byte, before+8+after)
	fillNode(b, c.draw.Uint64())
	r := w.put(binary.NativeEndian.Uint64(b[before:]))
	r.off, r.data = wordOff-before, b
	return r
}

// half returns a WRITE of one to seven bytes of a word.
func (w *lockWord) half(d *draw) request {
	at := d.IntN(7)
	n := d.between(1, 7-at)
	v, mask := make([]byte, 8), make([]byte, 8)
	for i := at; i < at+n; i++ {
		v[i], mask[i] = byte(d.Uint32()), 0xff
	}
	r := w.put(0)
	r.off, r.data = wordOff+at, v[at:at+n]
	r.Op = history.Op{Kind: history.Write, Value: binary.NativeEndian.Uint64(v), Mask: binary.NativeEndian.Uint64(mask)}
	return r
}
