package scenario

import (
	"bytes"
	"fmt"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/packettrace"
	"github.com/rdmalab/rdmalab/swordbox/telemetry"
	"github.com/rdmalab/rdmalab/swordbox/tracestore"
)

// traceOracle makes the frames of the hosts, and lists those that must be in each ring. It knows a
// frame's headers because it has made them, and uses no state of the switch.
type traceOracle struct {
	run      *traceRun
	samples  [traceHosts]teleTurns
	expected [][]traced // by ring
	passed   uint64     // frames of traced hosts that have reached the switch
	sampled  uint64     // those of them that belong to the sample
}

// traced is a frame that a ring must have.
type traced struct {
	frame int // number of the frame
	at    clock.Time
	port  int
	bytes []byte
}

func (r *traceRun) newOracle() *traceOracle {
	o := &traceOracle{run: r}
	for i := range o.samples {
		o.samples[i] = r.plan.sample.turns(i)
	}
	o.forget()
	return o
}

// forget is called when the switch crashes: it begins its rings and its samples again.
func (o *traceOracle) forget() {
	n := 1
	if o.run.plan.apart {
		n = o.run.plan.traced
	}
	o.expected, o.passed, o.sampled = make([][]traced, n), 0, 0
	for i := range o.samples {
		o.samples[i] = o.run.plan.sample.turns(i)
	}
}

// wrap puts a tap in front of the switch.
func (o *traceOracle) wrap(name string, n simnet.Node) simnet.Node {
	if name != rackfile.SwitchName {
		return n
	}
	return &simnet.Tap{Node: n, Pass: func(now clock.Time, port int, f *packetio.Frame) bool {
		if i, ok := numberOf(f.Data); ok && !o.run.down {
			o.see(i, now, port, f.Data)
		}
		return true
	}}
}

// see notes a frame that has reached the switch.
func (o *traceOracle) see(number int, now clock.Time, port int, b []byte) {
	from := o.run.mixed.made.frames[number].from
	if from >= o.run.plan.traced {
		return
	}
	o.passed++
	if !o.samples[from].next() {
		return
	}
	o.sampled++
	ring := 0
	if o.run.plan.apart {
		ring = from
	}
	o.expected[ring] = append(o.expected[ring], traced{number, now, port, bytes.Clone(b)})
}

// compare compares the ring of a host with the frames that it must have. missing is how many records of
// all rings may be missing.
func (o *traceOracle) compare(host int, g *tracestore.Ring, missing uint64) error {
	want, cells := o.expected[host], o.run.plan.records
	if g.Newest != uint64(len(want)) {
		return fmt.Errorf("ring %d has %d records; %d frames belong to it", host, g.Newest, len(want))
	}
	t := packettrace.New(g.Epoch)
	t.Add(o.run.cells(host))
	list, window, have := t.Records(), max(0, len(want)-cells), uint64(0)
	truth := make(map[telemetry.Key]uint64)
	for i := range list {
		r := &list[i]
		if r.Number > uint64(len(want)) {
			return fmt.Errorf("ring %d has record %d of %d", host, r.Number, len(want))
		}
		w := &want[r.Number-1]
		if int(r.Length) != len(w.bytes) || int(r.Port) != w.port || r.Time != w.at || r.Packets != 1 || r.Taken != 1 || !bytes.Equal(r.Head, w.bytes[:min(len(w.bytes), packettrace.HeadLen)]) {
			return fmt.Errorf("ring %d: record %d is %+v; the frame has %d bytes %x, from port %d at %v", host, r.Number, r, len(w.bytes), w.bytes[:min(len(w.bytes), packettrace.HeadLen)], w.port, w.at)
		}
		truth[o.run.mixed.made.frames[w.frame].key] += uint64(o.run.plan.sample.every)
		if int(r.Number) > window {
			have++ // the others are older records, where newer ones are missing
		}
	}
	if have+missing < uint64(len(want)-window) {
		return fmt.Errorf("ring %d has %d of its %d newest records; at most %d can be missing", host, have, len(want)-window, missing)
	}
	for _, f := range t.Report(telemetry.ByFlow, uint64(o.run.plan.sample.every)).Flows {
		if n := truth[f.Key]; n != f.Packets {
			return fmt.Errorf("ring %d: the analysis says that %+v has %d packets; it has %d", host, f.Key, f.Packets, n)
		}
		delete(truth, f.Key)
	}
	if len(truth) > 0 {
		return fmt.Errorf("ring %d: the analysis misses flows %v", host, truth)
	}
	return nil
}
