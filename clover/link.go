package clover

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// linked is the result of an append: slot is the slot of the key.
type linked struct {
	slot uint32
	// unused is true if link has returned an error and the client's node is certainly in no chain
	// and never will be, so that it can be used for another write.
	unused bool
}

// link appends a written node to the chain of key. That is the second round trip of a PUT. Each
// time another client appends first, link usually takes one more round trip with Config.Chase, and
// two or more without.
//
// A compare-and-swap that was not answered may have been executed, or may be executed later.
// Therefore link repeats it with the same operands. At most one of these requests can succeed: the
// first success changes the header, which has the expected value again only in a later epoch, when
// none of them can be in flight.
func (c *appender) link(key uint64, n node, deadline clock.Time) (linked, error) {
	uncertain := false
	var tried attempt // the compare-and-swap whose outcome is unknown, if uncertain
	for {
		out, err := c.tryLink(key, n, &tried, &uncertain, deadline)
		switch {
		case err == nil:
			return out, nil
		case errors.Is(err, kv.ErrNotFound), errors.Is(err, kv.ErrClosed), errors.Is(err, kv.ErrLost), errors.Is(err, errLease):
			out.unused = !uncertain && (errors.Is(err, kv.ErrNotFound) || errors.Is(err, kv.ErrClosed))
			if uncertain {
				err = fmt.Errorf("%w: %v", kv.ErrTimeout, err) //nolint:errorlint // callers must not treat it as an error without effect
			}
			return out, err
		}
		if err := c.session.prepareRetry(err, deadline); err != nil {
			return out, err
		}
	}
}

// attempt is a compare-and-swap on the header of a node, with the epoch in which the client knew
// that node. After the client has confirmed a later epoch, the node's place may contain another
// node with the same version.
type attempt struct {
	layout.Location
	epoch uint32
}

// tryLink tries to append node n to the chain of the key until a compare-and-swap succeeds, the
// chain turns out to end in a tombstone, or an attempt fails. If *uncertain is true, *tried is an
// earlier compare-and-swap whose outcome is unknown, and tryLink first finds out whether n is in
// the chain (settle). If the outcome of a new compare-and-swap is unknown, tryLink puts it into
// *tried and sets *uncertain.
func (c *appender) tryLink(key uint64, n node, tried *attempt, uncertain *bool, deadline clock.Time) (linked, error) {
	k, err := c.finder.locate(key, deadline)
	if err != nil {
		return linked{}, err
	}
	if *uncertain {
		done, err := c.settle(key, n, tried, uncertain, deadline)
		if err != nil || done {
			return linked{slot: k.slot}, err
		}
		if k, err = c.finder.locate(key, deadline); err != nil { // settle may have taken a long time
			return linked{}, err
		}
	}
	for hops := 0; ; {
		if c.session.rt.Now() >= deadline {
			return linked{}, kv.ErrTimeout
		}
		if k.epoch != c.session.lease.epoch {
			if k, err = c.finder.query(key, deadline); err != nil {
				return linked{}, err
			}
		}
		was, err := c.swap(attempt{k.at, k.epoch}, n, deadline)
		if errors.Is(err, errLease) || errors.Is(err, errEpoch) {
			return linked{}, err
		}
		if err != nil {
			*tried, *uncertain = attempt{k.at, k.epoch}, true
			return linked{}, err
		}
		if n.follows(k.at, was) {
			return linked{slot: k.slot}, nil
		}
		if was == layout.Header(was.EntryVersion()) {
			*tried, *uncertain = attempt{k.at, k.epoch}, true
			return linked{}, errOtherEnd
		}
		c.session.cost.Retries++
		at := k.at
		if next, more := was.Next(); more && c.session.cfg.Chase && was.Valid() && was.EntryVersion() == at.Version && hops < maxHops {
			hops++
			k.at = next
			continue
		}
		hops = 0
		var header layout.Word
		if k, header, err = c.finder.newer(key, k, c.finder.hops(), deadline); err != nil {
			return linked{}, err
		}
		if k.at == n.at {
			return linked{slot: k.slot}, nil // an earlier request of this append, which was not answered, has succeeded
		}
		if header.IsTombstone() {
			c.finder.cache.drop(key)
			return linked{}, kv.ErrNotFound
		}
		c.finder.remember(key, k)
	}
}

// maxHops is the number of successors in a row that a writer tries with Config.Chase. After that it
// reads the shortcut.
const maxHops = 2

// swap executes the compare-and-swap that appends n to the node `at`. It returns the header that
// the compare-and-swap found.
func (c *appender) swap(at attempt, n node, deadline clock.Time) (layout.Word, error) {
	if err := c.session.owns(n, deadline); err != nil {
		return 0, err
	}
	p, s, err := c.finder.placeIn(at.epoch, at.Location, deadline)
	if err != nil {
		return 0, err
	}
	if c.session.copied() {
		return c.swapCopies(at, n, deadline)
	}
	o := &c.session.ops[0]
	compare, swap := layout.Header(at.Version), layout.Superseded(at.Version, n.at)
	c.session.fab.CompareSwap(o, s.target(p.Offset), uint64(compare), uint64(swap), c.session.at.words)
	if err := c.session.do(deadline, o); err != nil {
		return 0, err
	}
	was, err := c.session.word(0)
	if tail, ok := was.Told(); ok {
		_, c.front[n.class] = tail.Pace(c.front[n.class])
		was = layout.Header(was.EntryVersion())
	}
	return was, err
}

// errOtherEnd means that a compare-and-swap found the header of a newest node, but with another
// version than that of the named node. Either the place was reused, or a switch steered the request
// to another node, where it succeeded, and was restarted before the response reached the client.
var errOtherEnd = errors.New("the append found a node of another version")

// follows reports whether n is the successor of the node `at` after a compare-and-swap of the
// client. was is the header that the compare-and-swap has found. n is the successor if was is the
// expected header, which the compare-and-swap has replaced, or if was already names n.
func (n node) follows(at layout.Location, was layout.Word) bool {
	next, more := was.Next()
	return was == layout.Header(at.Version) || more && next == n.at && was.Valid()
}

// settle finds the outcome of tried, a compare-and-swap that was not answered, and returns true if
// the client's node n is in the chain. First it calls unsteer, so that the switch no longer steers
// a late copy of tried. Then it reads the header of the node to which tried appends n. If this
// header names n, the compare-and-swap has succeeded. If it names no successor, settle repeats the
// compare-and-swap. Otherwise another client has appended a node there. But a switch may have
// steered tried to a later node; settleByChain finds that out. If a new epoch has begun, the place
// may contain another node by now, and settle calls settleByChain at once.
func (c *appender) settle(key uint64, n node, tried *attempt, uncertain *bool, deadline clock.Time) (bool, error) {
	if c.session.copied() {
		return c.settleCopies(key, n, tried, uncertain, deadline)
	}
	if err := c.unsteer(n, deadline); err != nil {
		return false, err
	}
	if tried.epoch != c.session.lease.epoch {
		return c.settleByChain(key, n, uncertain, deadline)
	}
	header, _, err := c.finder.readHeader(tried.epoch, tried.Location, -1, deadline)
	if err != nil {
		return false, err
	}
	if header.EntryVersion() == tried.Version && header.Valid() {
		at, more := header.Next()
		switch {
		case more && at == n.at:
			return true, nil
		case !more && !header.IsTombstone():
			// The outcome is still open: settle repeats the compare-and-swap on the same node.
			was, err := c.swap(*tried, n, deadline)
			if err != nil {
				return false, err
			}
			if n.follows(tried.Location, was) {
				return true, nil
			}
		}
	}
	return c.settleByChain(key, n, uncertain, deadline)
}

// settleByChain looks for the client's node n, and returns true if n was linked. That is so if n
// has a successor or a later version, if the chain ends with n, or if the metadata server has seen
// n in a chain. If n was certainly not linked, settleByChain sets *uncertain to false. During the
// search the metadata server may follow the chain beyond n to a tombstone, and remove the chain.
// The memory of the nodes does not show that, and the key may have been inserted again. Therefore
// settleByChain asks the server once more at the end.
func (c *appender) settleByChain(key uint64, n node, uncertain *bool, deadline clock.Time) (bool, error) {
	k, met, err := c.inquire(key, n, deadline)
	if met || err != nil {
		return met, err
	}
	if k, _, err = c.finder.newest(key, k, deadline); err != nil {
		return false, err
	}
	if k.at == n.at {
		return true, nil
	}
	if moved, err := c.moved(n, deadline); moved || err != nil {
		return moved, err
	}
	_, met, err = c.inquire(key, n, deadline)
	if err == nil {
		*uncertain = met
	}
	return met, err
}

// inquire asks the metadata server for a node of the key's chain, and whether the server has seen
// the node n in a chain (met).
func (c *appender) inquire(key uint64, n node, deadline clock.Time) (k known, met bool, err error) {
	if err := c.session.owns(n, deadline); err != nil {
		return known{}, false, err
	}
	c.finder.cache.drop(key)
	a, err := c.session.ask(&rpc.Request{Op: rpc.OpQuery, Key: key, At: n.at}, deadline)
	switch {
	case err != nil:
		return known{}, false, err
	case a.Status == rpc.Done:
		return known{}, true, nil
	case a.Status == rpc.Unknown: // ask has called hello
		return known{}, false, errLease
	}
	k, err = c.finder.located(key, a)
	return k, false, err
}

// moved reports whether a node has a successor or a later version. If so, it has been in a chain.
func (c *appender) moved(n node, deadline clock.Time) (bool, error) {
	header, _, err := c.finder.readHeader(c.session.lease.epoch, n.at, -1, deadline)
	_, more := header.Next()
	return err == nil && (more || header.EntryVersion() != n.at.Version), err
}
