package switchd

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/tap"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// fromHost applies the faults of the way up and hands the frame to the pipeline. Faults are about packets, so while
// there are rules a super-frame is taken apart.
func (d *Daemon) fromHost(i int, f packetio.Frame) {
	in := d.ports[i].up
	if in.Active() && f.Splittable() {
		start := len(d.scratch.Frames)
		d.scratch.Split(f)
		for k := start; k < len(d.scratch.Frames); k++ {
			d.packetFromHost(i, d.scratch.Frames[k], in)
		}
		return
	}
	d.packetFromHost(i, f, in)
}

func (d *Daemon) packetFromHost(i int, f packetio.Frame, in *fault.Injector) {
	v := in.Frame(d.now, f.Data)
	if v.Passes() {
		d.switched(i, f, "", false)
		return
	}
	f, dropped := d.distort(i, f, &v)
	comment := d.explain(&v)
	switch {
	case dropped:
		d.show(i, tap.Up, f, comment)
	case v.Delay > 0:
		for range 1 + v.Copies {
			if !d.delays.add(d.now.Add(v.Delay), i, tap.Up, f) {
				d.sw.CountDrop(i, pipeline.ReasonHoldFull, f.Packets())
				comment = join(comment, "dropped: too many frames are delayed")
			}
		}
		d.show(i, tap.Up, f, comment)
	default:
		for range 1 + v.Copies {
			d.switched(i, f, comment, false)
		}
	}
}

// toHost applies the faults of the way down and queues the frame.
func (d *Daemon) toHost(to int, f packetio.Frame, comment string) {
	in := d.ports[to].down
	if in.Active() && f.Splittable() {
		start := len(d.scratch.Frames)
		d.scratch.Split(f)
		for k := start; k < len(d.scratch.Frames); k++ {
			d.packetToHost(to, d.scratch.Frames[k], in, comment)
		}
		return
	}
	d.packetToHost(to, f, in, comment)
}

func (d *Daemon) packetToHost(to int, f packetio.Frame, in *fault.Injector, comment string) {
	v := in.Frame(d.now, f.Data)
	if v.Passes() {
		d.enqueue(to, f, comment)
		return
	}
	f, dropped := d.distort(to, f, &v)
	comment = join(comment, d.explain(&v))
	switch {
	case dropped:
		d.show(to, tap.Down, f, comment)
	case v.Delay > 0:
		for range 1 + v.Copies {
			if !d.delays.add(d.now.Add(v.Delay), to, tap.Down, f) {
				d.sw.CountDrop(to, pipeline.ReasonHoldFull, f.Packets())
				d.show(to, tap.Down, f, join(comment, "dropped: too many frames are delayed"))
			}
		}
	default:
		for range 1 + v.Copies {
			d.enqueue(to, f, comment)
		}
	}
}

// distort drops or corrupts. A corrupted frame is a copy.
func (d *Daemon) distort(i int, f packetio.Frame, v *fault.Verdict) (_ packetio.Frame, dropped bool) {
	if v.Corrupt && !corruptible(&f) {
		v.Drop = true
	}
	if v.Drop {
		d.sw.CountDrop(i, pipeline.ReasonFault, f.Packets())
		return f, true
	}
	if v.Corrupt {
		f.Data = append(d.scratch.Alloc(len(f.Data)), f.Data...)
		f.FinishChecksum() // or the kernel behind the link would trust the damaged bytes
		fault.FlipBit(f.Data, v.Bit)
	}
	return f, false
}

// corruptible says that a checksum further up will catch a flipped bit. What has none, ARP above all, is dropped in
// place of being corrupted, as its frame check sequence would have it dropped: a poisoned neighbour table is no fault
// of a link. So is a super-frame of TCP, whose segments have no finished checksums yet.
func corruptible(f *packetio.Frame) bool {
	if f.SegSize > 0 || len(f.Data) < 18 {
		return false
	}
	etherType := binary.BigEndian.Uint16(f.Data[12:])
	if etherType == wire.EtherTypeVLAN {
		etherType = binary.BigEndian.Uint16(f.Data[16:])
	}
	return etherType == wire.EtherTypeIPv4 || etherType == wire.EtherTypeIPv6
}

func (d *Daemon) show(i int, dir tap.Direction, f packetio.Frame, comment string) {
	if d.observing {
		d.hub.Frame(d.unixNanos(), i, dir, f, comment)
	}
}

// explain says what a verdict does and by which rules, for captures: "fault f1 (loss): dropped".
func (d *Daemon) explain(v *fault.Verdict) string {
	if !d.observing || len(v.Rules) == 0 { // the first frame on a slow line waits for its own bits only
		return ""
	}
	var what []string
	if v.Drop {
		what = append(what, "dropped")
	}
	if v.Corrupt && !v.Drop {
		what = append(what, fmt.Sprintf("bit %d behind the Ethernet header flipped", v.Bit))
	}
	if v.Copies > 0 && !v.Drop {
		what = append(what, fmt.Sprintf("sent %d times", v.Copies+1))
	}
	if v.Delay > 0 && !v.Drop {
		what = append(what, "delayed by "+v.Delay.Round(time.Microsecond).String())
	}
	who := make([]string, len(v.Rules))
	for i, id := range v.Rules {
		who[i] = id
		if r, ok := d.plan.Rule(id); ok {
			who[i] += " (" + string(r.Kind) + ")"
		}
	}
	return "fault " + strings.Join(who, ", ") + ": " + strings.Join(what, ", ")
}
