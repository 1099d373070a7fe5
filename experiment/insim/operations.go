package insim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/store/kv"
)

// wireRun traces the packets of two clients of one compute node.
type wireRun struct {
	tree  *treeRun
	frame wire.Frame
	// owner says for each queue pair at either end of a connection which client, 1 or 2, the
	// connection belongs to. teach is the client that opens its connections now: record enters
	// queue pairs that are not in owner yet for this client.
	owner map[wire.QPN]int
	teach int
	seen  []wireFrame            // the packets that record has stored so far
	costs []experiment.Operation // the operations that were measured
	turn  int                    // 0: client 1 records its queue pairs; 1: client 2 does; 2: client 1 is measured; 3: both are
	start clock.Time             // when both clients begin to update the same key (turn 3)
	done  int                    // the number of hand-overs that were measured
}

// wireFrame is a packet of a client's queue pair, at the time when it entered the link of its
// sender.
type wireFrame struct {
	client int
	at     clock.Time
	op     wire.Opcode
	bytes  int
	up     bool // sent by the client
}

// ethernet is the length of an Ethernet header in bytes.
const ethernet = 14

// record is called for each event of the simulation, and stores the packets of the two clients'
// queue pairs.
func (r *wireRun) record(ev *simnet.Event) {
	if ev.Kind != simnet.Sent || ev.Dir() != fault.Up || wire.ParseFrame(ev.Frame, &r.frame) != nil || r.frame.BTH.DestQP <= 1 {
		return
	}
	qp := r.frame.BTH.DestQP
	if r.owner[qp] == 0 {
		r.owner[qp] = r.teach
	}
	op := r.frame.BTH.Opcode
	r.seen = append(r.seen, wireFrame{r.owner[qp], ev.At, op, len(ev.Frame) - ethernet, op.Is(wire.OpRequest)})
}

// measured runs one operation of a client by calling f, and counts the operation's packets, bytes
// and round trips. published is how many bytes the operation's packets have in the published
// formats.
func (r *wireRun) measured(name string, published, client int, c *sherman.Client, rt verbs.Runtime, f func() error) (experiment.Operation, error) {
	began := rt.Now()
	if err := f(); err != nil {
		return experiment.Operation{}, fmt.Errorf("%s: %w", name, err)
	}
	took := c.LastCost()
	out := experiment.Operation{Name: name, Published: published, ClaimedRTTs: took.RTTs, ClaimedBytes: took.Bytes}
	waiting := false
	for _, p := range r.seen {
		if p.client != client || p.at < began {
			continue
		}
		if p.up && !waiting {
			out.RTTs++
		}
		waiting = p.up
		out.Bytes += p.bytes
		out.Packets = append(out.Packets, p.op.String())
	}
	return out, nil
}

// Lengths of IP packets in the published formats (Sherman §5.2): CAS and its answer, READ of a page
// and its answer, WRITE of a record, WRITE of a lock word, ACK.
const (
	bytesCAS    = 72 + 56
	bytesRead   = 60 + 1072
	bytesRecord = 80
	bytesUnlock = 68
	bytesAck    = 48
	bytesWrite  = bytesCAS + bytesRead + bytesRecord + bytesUnlock + bytesAck
	bytesHanded = bytesRead + bytesRecord + bytesAck
)

// TreeOperations traces single operations with a warm cache and with values of 8 bytes, as
// published, on a rack without costs.
func (*Sim) TreeOperations(ctx context.Context) ([]experiment.Operation, error) {
	load := experiment.Sherman{Keys: 2000, Seed: 1, Locks: experiment.LocksDevice}
	r := &wireRun{tree: &treeRun{load: load, count: 1, value: 8}, owner: make(map[wire.QPN]int)}
	if err := r.tree.build(ctx, simrack.Options{Trace: r.record}); err != nil {
		return nil, err
	}
	defer r.tree.rack.Close()
	h := r.tree.rack.Host("cn1")
	for i := 1; i <= 2; i++ {
		h.Go(fmt.Sprintf("client%d", i), false, func(ctx verbs.Context) {
			rt := ctx.Runtime()
			for !r.tree.ready || r.turn != i-1 {
				rt.Sleep(time.Millisecond)
			}
			r.teach = i
			c, err := r.tree.open(h, ctx, 1)
			if err == nil {
				err = r.work(i, c, rt)
			}
			r.tree.rack.Stop(err)
		})
	}
	err := run(ctx, r.tree.rack)
	if err == nil && len(r.costs) < 6 {
		err = errors.New("no lock was handed over")
	}
	return r.costs, err
}

// handedPackets is the number of packets of an update whose lock comes from a client of the same
// node and is handed over again: READ, answer, WRITE and ACK.
const handedPackets = 4

const wireKey = 1000

// work runs one client. First it records which queue pairs the client uses. Then client 1 is
// measured alone, and after that both clients work until a lock is handed over.
func (r *wireRun) work(id int, c *sherman.Client, rt verbs.Runtime) error {
	soon := func() clock.Time { return rt.Now().Add(time.Second) }
	for range 3 {
		if err := c.Put(wireKey, kv.MakeValue(1, 1, 16)[:8], soon()); err != nil {
			return err
		}
		if _, err := c.Get(wireKey, nil, soon()); err != nil {
			return err
		}
	}
	if err := c.Insert(2*r.tree.load.Keys+uint64(id), []byte("12345678"), soon()); err != nil { // allocates memory for pages
		return err
	}
	if r.turn++; id == 2 {
		for r.turn != 3 {
			rt.Sleep(time.Millisecond)
		}
	} else if err := r.alone(c, rt); err != nil {
		return err
	}
	return r.together(id, c, rt)
}

// alone measures the operations of client 1 while client 2 is idle.
func (r *wireRun) alone(c *sherman.Client, rt verbs.Runtime) error {
	for r.turn != 2 {
		rt.Sleep(time.Millisecond)
	}
	soon := func() clock.Time { return rt.Now().Add(time.Second) }
	value := []byte("12345678")
	fresh := 3 * r.tree.load.Keys
	for _, op := range []struct {
		name  string
		bytes int
		do    func() error
	}{
		{"search", bytesRead, func() error { _, err := c.Get(wireKey, nil, soon()); return err }},
		{"update", bytesWrite, func() error { return c.Put(wireKey, value, soon()) }},
		{"delete", bytesWrite, func() error { return c.Delete(wireKey, soon()) }},
		{"insert", bytesWrite, func() error { return c.Insert(wireKey, value, soon()) }},
		{"insert behind the last key", bytesWrite, func() error { return c.Insert(fresh, value, soon()) }},
	} {
		if op.name == "insert behind the last key" {
			if _, err := c.Get(fresh, nil, soon()); !errors.Is(err, kv.ErrNotFound) {
				return err // this GET only warms the cache
			}
		}
		rt.Sleep(time.Millisecond) // until late packets of the previous operation have arrived
		cost, err := r.measured(op.name, op.bytes, 1, c, rt, op.do)
		if err != nil {
			return err
		}
		r.costs = append(r.costs, cost)
	}
	r.turn, r.start = r.turn+1, rt.Now().Add(10*time.Millisecond)
	return nil
}

// together makes both clients update the same key. The first operation that gets the lock by a
// hand-over and hands it over is measured.
func (r *wireRun) together(id int, c *sherman.Client, rt verbs.Runtime) error {
	rt.Sleep(r.start.Sub(rt.Now()))
	for range 200 {
		if r.done > 0 {
			return nil
		}
		cost, err := r.measured("update, lock handed over", bytesHanded, id, c, rt, func() error {
			return c.Put(wireKey, []byte("87654321"), rt.Now().Add(time.Second))
		})
		if err != nil {
			return err
		}
		if c.LastCost().HandOvers == 1 && len(cost.Packets) == handedPackets && r.done == 0 {
			r.costs = append(r.costs, cost)
			r.done++
		}
	}
	return nil
}
