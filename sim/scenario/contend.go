package scenario

import (
	"encoding/binary"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// contention checks atomics by two words of a server: clients add 1 to the first by FETCH_ADD, and
// increment the second by CAS. All clients together must see each original value of the first word,
// and each value of the second that a CAS replaced, exactly once. If an atomic was lost, clients
// see a value twice; if one was executed twice, they miss a value.
type contention struct {
	env     *env
	clients int
	rounds  int // operations that each client does of each kind
	params  rdmacm.Params
	adds    []uint64 // original values that FETCH_ADDs have returned to any client
	swaps   []uint64 // values that CASes have replaced
	atomics int      // atomics that clients have requested
	mr      verbs.MR
}

const (
	contendService = "contend"
	contendBytes   = 64
	addWord        = 0
	swapWord       = 8
)

// serve registers the words, and accepts the connections of all clients with the words' address in
// the answer.
func (c *contention) serve(ctx verbs.Context, l rdmacm.Listener) error {
	pd, err := ctx.AllocPD()
	if err != nil {
		return err
	}
	if c.mr, err = pd.RegMR(nil, contendBytes, wordAccess); err != nil {
		return err
	}
	return acceptAll(ctx, l, c.clients, pd, c.params, c.mr)
}

// client adds 1 to the first word with up to depth FETCH_ADDs in flight, and then increments the
// second word by CAS.
func (c *contention) client(ctx verbs.Context, from string, depth int) error {
	end, err := newEnds(ctx, 8*depth, depth, verbs.LocalWrite)
	if err != nil {
		return err
	}
	regions, err := c.env.dial(c.env.rack.Host(from), ctx, end.qp, contendService, c.params, nil)
	if err != nil {
		return err
	}
	mem := regions[0]
	if err := c.add(end, mem, depth); err != nil {
		return end.limit(err, from)
	}
	if err := c.swap(end, mem); err != nil {
		return end.limit(err, from)
	}
	return end.close()
}

func (c *contention) add(end *ends, mem remote, depth int) error {
	posted, complete := 0, 0
	var wcs [8]verbs.WC
	for complete < c.rounds {
		for ; posted < c.rounds && posted-complete < depth; posted++ {
			c.atomics++
			err := end.qp.PostSend(verbs.SendWR{
				ID: uint64(posted), Op: verbs.OpFetchAdd, Flags: verbs.Signalled, CompareAdd: 1,
				SGL: []verbs.SGE{end.mr.SGE(posted%depth*8, 8)}, RemoteAddr: mem.addr + addWord, RKey: mem.rkey,
			})
			if err != nil {
				return err
			}
		}
		n, err := end.await(wcs[:], mixPatience)
		if err != nil {
			return err
		}
		for _, wc := range wcs[:n] {
			if wc.Status != verbs.Success {
				return &perf.CompletionError{Op: "FETCH_ADD", Msg: wc.ID, Status: wc.Status}
			}
			if wc.ID != uint64(complete) {
				return fmt.Errorf("FETCH_ADD %d: completion of %d: order is broken", complete, wc.ID)
			}
			c.adds = append(c.adds, binary.NativeEndian.Uint64(end.buf[complete%depth*8:]))
			complete++
		}
	}
	return nil
}

// swap increments the second word by CAS until c.rounds of its CASes have succeeded.
func (c *contention) swap(end *ends, mem remote) error {
	// maxTries bounds the loop. A CAS fails only if a CAS of another client has succeeded
	// meanwhile, so the number of failures is limited; the factor 2 is a reserve.
	maxTries := c.rounds * (c.clients + 1) * 2
	guess := uint64(0)
	for done, tries := 0, 0; done < c.rounds; tries++ {
		if tries == maxTries {
			return fmt.Errorf("CAS loop: %d of %d after %d tries", done, c.rounds, tries)
		}
		c.atomics++
		wc, err := end.do(verbs.SendWR{
			ID: uint64(tries), Op: verbs.OpCmpSwap, CompareAdd: guess, Swap: guess + 1,
			SGL: []verbs.SGE{end.mr.SGE(0, 8)}, RemoteAddr: mem.addr + swapWord, RKey: mem.rkey,
		})
		if err != nil {
			return err
		}
		if wc.Status != verbs.Success {
			return &perf.CompletionError{Op: "CMP_SWAP", Msg: uint64(tries), Status: wc.Status}
		}
		old := binary.NativeEndian.Uint64(end.buf)
		if old == guess {
			c.swaps = append(c.swaps, old)
			done++
			old++
		}
		guess = old
	}
	return nil
}

// check returns an error unless the clients together have seen every value of both words exactly
// once.
func (c *contention) check() error {
	total := c.clients * c.rounds
	for kind, values := range map[string][]uint64{"FETCH_ADD": c.adds, "CMP_SWAP": c.swaps} {
		seen := make([]bool, total)
		for _, v := range values {
			if v >= uint64(total) {
				return fmt.Errorf("%s replaced the value %d, there were %d in all: one was done twice", kind, v, total)
			}
			if seen[v] {
				return fmt.Errorf("%s replaced the value %d twice: one was lost", kind, v)
			}
			seen[v] = true
		}
		if len(values) != total {
			return fmt.Errorf("%d %s of %d", len(values), kind, total)
		}
	}
	for off, name := range map[int]string{addWord: "FETCH_ADD", swapWord: "CMP_SWAP"} {
		got, err := c.mr.Load64(off)
		if err != nil {
			return err
		}
		if got != uint64(total) {
			return fmt.Errorf("the sum of %s is %d, want %d", name, got, total)
		}
	}
	return nil
}
