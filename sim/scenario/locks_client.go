package scenario

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/sim/history"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Bounds of a client, in virtual time.
const (
	// quiet is how long a client waits before it makes a new connection. No packet stays in the
	// links for longer, so no packet of the old queue pair arrives after the first one of the new
	// queue pair.
	quiet = 2 * time.Millisecond
	// mourning is how long a client must have been dead before another client takes over its lock.
	// By then every packet of the dead client has arrived or is lost.
	mourning = time.Second
	// lockPatience is the time at which clients stop, even if they have rounds left.
	lockPatience = clock.Time(30 * time.Second)
	// dialTry bounds the time in which one connection is made.
	dialTry = 500 * time.Millisecond
)

// lockClient is an application that uses the words of both memory servers, with one queue pair to
// each.
type lockClient struct {
	run    *lockRun
	id     int
	host   *simrack.Host
	rounds int
	draw   *draw
	rt     verbs.Runtime
	ctx    verbs.Context
	conns  [2]*lockConn
	dead   bool
	diedAt clock.Time

	wants    *lockWord // the lock that the client is taking, has, or is releasing
	has      *lockWord // the lock that the client has
	hasEpoch int       // lockWord.epoch of that lock when the client took it

	done     int // rounds that the client has done
	starved  int // rounds that the client gave up because the lock was never free
	grants   int
	longest  time.Duration // how long the slowest operation took
	finished bool
}

type lockConn struct {
	*ends
	words map[*lockWord]handle
}

// handle describes a word to the client of a connection: the address and R_Key of the word's area,
// its history and its epoch.
type handle struct {
	remote
	log, epoch int
}

const (
	lockDepth = 8 // the most work requests of a client in flight
	lockSlot  = areaBytes
)

type request struct {
	history.Op // the operation, as the history records it
	word       *lockWord
	off        int // offset of the request in the word's area
	data       []byte
	n          int // bytes of a READ
	inline     bool
	fence      bool
	rec        bool // the operation is recorded in the word's history
}

func operation(o history.Op) verbs.SendWR {
	switch o.Kind {
	case history.Write:
		return verbs.SendWR{Op: verbs.OpWrite}
	case history.CmpSwap:
		return verbs.SendWR{Op: verbs.OpCmpSwap, CompareAdd: o.Compare, Swap: o.Value}
	case history.FetchAdd:
		return verbs.SendWR{Op: verbs.OpFetchAdd, CompareAdd: o.Value}
	case history.Read:
	}
	return verbs.SendWR{Op: verbs.OpRead}
}

// reply is the outcome of a request. ok is true if the outcome is known.
type reply struct {
	ok    bool
	value uint64 // of the word, as an atomic or READ has found it
	bytes []byte // data of a READ, valid until the next call of do
}

var (
	// errPatience ends a client at lockPatience, the end of the run.
	errPatience = errors.New("out of patience")
	// errMemoryLost ends a client's round when the server has lost the memory of the lock that the
	// client has.
	errMemoryLost = errors.New("the server has lost its memory")
)

// connect returns the client's connection to a server. If there is none, connect tries to make one
// until lockPatience.
func (c *lockClient) connect(server int) (*lockConn, error) {
	if k := c.conns[server]; k != nil {
		return k, nil
	}
	for c.rt.Now() < lockPatience {
		ends, err := newEnds(c.ctx, lockDepth*lockSlot, lockDepth, verbs.LocalWrite)
		if err != nil {
			return nil, err
		}
		s := c.run.servers[server]
		private, err := c.host.Manager(c.ctx).Dial(ends.qp, c.run.env.addrOf(s.host.Spec.Name), lockService, c.run.plan.params,
			nil, c.rt.Now().Add(dialTry))
		if err != nil {
			_ = ends.close() // Close may fail while the queue pair still connects; then its objects end with the client
			c.rt.Sleep(c.draw.span(quiet, 10*quiet))
			continue
		}
		k := &lockConn{ends: ends, words: make(map[*lockWord]handle)}
		for i, r := range parseRemotes(private) {
			w := s.words[i]
			k.words[w] = handle{r, w.log, w.epoch}
		}
		c.conns[server] = k
		return k, nil
	}
	return nil, errPatience
}

// drop closes the connection to a server, whose queue pair has failed, and waits until no packet of
// it is left in the links.
func (c *lockClient) drop(server int) {
	k := c.conns[server]
	if k == nil {
		return
	}
	c.conns[server] = nil
	c.run.queuePairsFailed++
	_ = k.close()
	c.rt.Sleep(quiet + c.draw.span(0, quiet))
}

// do posts requests to one server with one doorbell and waits for all answers. If the queue pair
// fails, do drops it; then the outcome of the requests without an answer is unknown, and ok is
// false in their replies.
func (c *lockClient) do(server int, reqs ...request) ([]reply, error) {
	k, err := c.connect(server)
	if err != nil {
		return nil, err
	}
	if c.has != nil && c.hasEpoch != k.words[c.has].epoch && c.has == reqs[0].word {
		return nil, errMemoryLost
	}
	replies := make([]reply, len(reqs))
	ids := make([]history.ID, len(reqs))
	wrs := make([]verbs.SendWR, len(reqs))
	for i := range reqs {
		wrs[i] = c.workRequest(k, i, &reqs[i])
	}
	for i := range reqs {
		if isAtomic(wrs[i].Op) {
			c.run.atomics++
		}
		if reqs[i].rec {
			ids[i] = c.run.log.Invoke(k.words[reqs[i].word].log, c.id, reqs[i].Op)
		}
	}
	posted := c.rt.Now()
	if err := k.qp.PostSend(wrs...); err != nil {
		c.drop(server)
		return replies, nil
	}
	for n := 0; n < len(reqs); n++ {
		var wc [1]verbs.WC
		if _, err := k.await(wc[:], mixPatience); err != nil {
			return nil, fmt.Errorf("%v to ms%d: %w", wrs[n].Op, server, err)
		}
		c.longest = max(c.longest, c.rt.Now().Sub(posted))
		if wc[0].Status != verbs.Success {
			if err := c.run.allow(c, server, wc[0].Status); err != nil {
				return nil, err
			}
			c.drop(server)
			return replies, nil
		}
		if wc[0].ID != uint64(n) {
			return nil, fmt.Errorf("completion of request %d in place of %d", wc[0].ID, n)
		}
		replies[n] = c.answer(k, n, &reqs[n])
		if reqs[n].rec {
			c.run.log.Return(ids[n], replies[n].value)
		}
	}
	return replies, nil
}

// workRequest makes the work request of r. Its local memory is slot i of the connection's buffer.
func (c *lockClient) workRequest(k *lockConn, i int, r *request) verbs.SendWR {
	mem, wr, n := k.words[r.word], operation(r.Op), r.n
	if r.Kind == history.Write {
		n = copy(k.buf[i*lockSlot:], r.data)
	} else if isAtomic(wr.Op) {
		n = 8
	}
	wr.ID, wr.Flags, wr.SGL = uint64(i), verbs.Signalled, []verbs.SGE{k.mr.SGE(i*lockSlot, n)}
	wr.RemoteAddr, wr.RKey = mem.addr+uint64(r.off), mem.rkey
	if r.inline {
		wr.Flags |= verbs.Inline
		wr.SGL, wr.Data = nil, append([]byte(nil), r.data...)
	}
	if r.fence {
		wr.Flags |= verbs.Fence
	}
	return wr
}

// answer reads the result of request r from slot i of the connection's buffer.
func (c *lockClient) answer(k *lockConn, i int, r *request) reply {
	out := reply{ok: true}
	b := k.buf[i*lockSlot:]
	switch r.Kind {
	case history.Write:
	case history.CmpSwap, history.FetchAdd:
		out.value = binary.NativeEndian.Uint64(b)
	case history.Read:
		out.bytes = b[:r.n]
		if at := wordOff - r.off; at >= 0 && at+8 <= r.n {
			out.value = binary.NativeEndian.Uint64(b[at:])
		}
	}
	return out
}

// one posts a single request and returns its outcome.
func (c *lockClient) one(r request) (reply, error) {
	out, err := c.do(r.word.server, r)
	if err != nil {
		return reply{}, err
	}
	return out[0], nil
}

// cas returns a request for a CMP_SWAP of word w, which is recorded in the word's history.
func (w *lockWord) cas(compare, swap uint64) request {
	return request{Op: history.Op{Kind: history.CmpSwap, Compare: compare, Value: swap}, word: w, off: wordOff, rec: true}
}

// add returns a request for a FETCH_ADD of v to word w, which is recorded.
func (w *lockWord) add(v uint64) request {
	return request{Op: history.Op{Kind: history.FetchAdd, Value: v}, word: w, off: wordOff, rec: true}
}

// put returns a request for a WRITE of v to word w, which is recorded.
func (w *lockWord) put(v uint64) request {
	return request{Op: history.Op{Kind: history.Write, Value: v}, word: w, off: wordOff, data: binary.NativeEndian.AppendUint64(nil, v), rec: true}
}

// get returns a request for a READ of n bytes at offset off of the word's area. The bytes must
// contain the word; its value is recorded.
func (w *lockWord) get(off, n int) request { return request{word: w, off: off, n: n, rec: true} }

// mark returns a WRITE of v to the word's guard (the word by which a holder shows that it is
// inside). It is not recorded.
func (w *lockWord) mark(v uint64) request {
	return request{Op: history.Op{Kind: history.Write}, word: w, off: guardOff, data: binary.NativeEndian.AppendUint64(nil, v)}
}

// writeNode returns a WRITE of the word's node. It is not recorded.
func (w *lockWord) writeNode(node []byte) request {
	return request{Op: history.Op{Kind: history.Write}, word: w, off: nodeOff, data: node}
}
