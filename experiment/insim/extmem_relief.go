package insim

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const (
	// reliefServers are the servers of a ring, behind ms0, which is overloaded, and ms1, which is not.
	reliefServers = 8
	// reliefReady is when all connections have been made, and the WRITEs begin.
	reliefReady = clock.Time(50 * time.Millisecond)
	// reliefWindow is so large that the way, and not the window, limits a sender.
	reliefWindow = 1 << 14
	// reliefTimeout is the code of the ACK timeout, 67 ms: longer than packets wait for the port.
	reliefTimeout = 14
)

// reliefWays are the parts of the rack file for each way. The room of the switch is filled in.
var reliefWays = map[string]string{
	experiment.ReliefDrop:  "switch:\n  ports: {rate: RATE, buffer: ROOM, reaction: 0s}\n  dscp: {3: 3}\n  queues: {3: {limit: ROOM}}\n",
	experiment.ReliefPFC:   "switch:\n  ports: {rate: RATE, buffer: ROOM, reaction: 0s}\n  dscp: {3: 3}\n  queues: {3: {lossless: true}}\n",
	experiment.ReliefDCQCN: "congestion: {rp_max_rate: RATE}\nswitch:\n  ports: {rate: RATE, buffer: ROOM, reaction: 0s}\n  dscp: {3: 3}\n  queues: {3: {limit: ROOM, ecn: {kmin: 5KiB, kmax: 200KiB, pmax: 1%}}}\n",
	experiment.ReliefRing:  "switch:\n  program: swordbox\n  rules:\n    - {id: slow, server: ms0, action: buffer, ring: RING, rate: RATE, high: HIGH, low: 8, entries: ENTRIES, entry: 1552}\n",
}

// reliefRun is a Relief in progress.
type reliefRun struct {
	load experiment.Relief
	rack *simrack.Rack
	left int // WRITEs that have not completed
	out  experiment.ReliefResult
}

func (p *Sim) Relief(ctx context.Context, l experiment.Relief) (out experiment.ReliefResult, err error) {
	m := p.model(&experiment.Switch{LineRate: true})
	const frame = 1024 + 60
	entries := 2 * l.Bytes * l.Senders / 1024
	file := fmt.Sprintf("name: relief\nhosts:\n  - {name: \"cn[0-%d]\", role: compute, tos: 14}\n  - {name: \"ms[0-%d]\", role: memory, tos: 14}\n", l.Senders-1, reliefServers+1)
	file += strings.NewReplacer(
		"RATE", fault.FormatRate(m.Link.Rate), "ROOM", strconv.Itoa(l.Room), "HIGH", strconv.Itoa(l.Room/2/frame), "ENTRIES", strconv.Itoa(entries),
		"RING", `"`+strings.TrimPrefix(serverList(reliefServers+1), "ms1,")+`"`,
	).Replace(reliefWays[l.Way])
	r := &reliefRun{load: l, left: l.Senders + 1}
	if r.rack, err = newRack(ctx, file, simrack.Options{Cost: m, Datagrams: true, Window: reliefWindow}); err != nil {
		return out, err
	}
	defer r.rack.Close()
	for i := range reliefServers + 2 {
		serveMemory(r.rack, i, memservice.Config{Buffer: make([]byte, max(l.Bytes, (entries/reliefServers+1)*1552))})
	}
	r.rack.At(0, r.rack.Announce)
	for i := range l.Senders {
		r.write(i, "ms0", &r.out.Slowest)
	}
	r.write(0, "ms1", &r.out.Victim)
	if err := run(ctx, r.rack); err != nil {
		return out, err
	}
	for _, h := range r.rack.Hosts() {
		r.out.Resent += h.Counters().RetransPkts
	}
	return r.out, nil
}

// write starts the WRITE of host cn<sender> to a server. took becomes the time that it takes, if that is more.
func (r *reliefRun) write(sender int, server string, took *time.Duration) {
	h := r.rack.Host(fmt.Sprintf("cn%d", sender))
	h.Go("write to "+server, false, func(ctx verbs.Context) {
		if err := r.writeOnce(h, ctx, server, took); err != nil {
			r.rack.Stop(err)
		} else if r.left--; r.left == 0 {
			r.rack.Stop(nil)
		}
	})
}

func (r *reliefRun) writeOnce(h *simrack.Host, ctx verbs.Context, server string, took *time.Duration) error {
	params := rdmacm.Params{PathMTU: verbs.MTU1024, Timeout: reliefTimeout}
	s, err := newStream(ctx, h, r.rack.Host(server), params, verbs.OpWrite, r.load.Bytes, reliefReady)
	if err != nil {
		return err
	}
	s.rt.Sleep(reliefReady.Sub(s.rt.Now()))
	if err := s.qp.PostSend(s.wr); err != nil {
		return err
	}
	s.out++
	if err := s.drain(); err != nil {
		return fmt.Errorf("%s: the WRITE of %s to %s: %w", r.load.Way, h.Spec.Name, server, err)
	}
	*took = max(*took, s.rt.Now().Sub(reliefReady))
	return nil
}
