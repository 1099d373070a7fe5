package switchd

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/capture/tap"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// fromHost handles a frame that a host has sent, on link i: it applies the link's fault rules for
// the direction up, and passes the frame to the pipeline. Faults apply to single packets, so a
// super-frame is split while the link has such rules.
func (t *traffic) fromHost(i int, f packetio.Frame) {
	in := t.ports.list[i].up
	if in.Active() && f.Splittable() {
		start := len(t.scratch.Frames)
		t.scratch.Split(f)
		for k := start; k < len(t.scratch.Frames); k++ {
			t.packetFromHost(i, t.scratch.Frames[k], in)
		}
		return
	}
	t.packetFromHost(i, f, in)
}

func (t *traffic) packetFromHost(i int, f packetio.Frame, in *fault.Injector) {
	v := in.Frame(t.now, f.Data)
	if v.Passes() {
		t.switched(i, f, "", false)
		return
	}
	f, dropped := t.distort(i, f, &v)
	comment := t.explain(&v)
	switch {
	case dropped:
		t.show(i, tap.Up, f, comment)
	case v.Delay > 0:
		for range 1 + v.Copies {
			if !t.delays.add(t.now.Add(v.Delay), i, tap.Up, f) {
				t.sw.CountDrop(i, pipeline.ReasonHoldFull, f.Packets())
				comment = join(comment, "dropped: too many frames are delayed")
			}
		}
		t.show(i, tap.Up, f, comment)
	default:
		for range 1 + v.Copies {
			t.switched(i, f, comment, false)
		}
	}
}

// toHost applies the faults of the link down, and queues the frame. A super-frame is split while
// the link has rules, and for a host that accepts only single packets. A port that sends
// super-frames joins the remaining packets again.
func (t *traffic) toHost(to int, f packetio.Frame, comment string) {
	in := t.ports.list[to].down
	if (in.Active() || !t.ports.links[to].GSO) && f.Splittable() {
		start := len(t.scratch.Frames)
		t.scratch.Split(f)
		for k := start; k < len(t.scratch.Frames); k++ {
			t.packetToHost(to, t.scratch.Frames[k], in, comment)
		}
		return
	}
	t.packetToHost(to, f, in, comment)
}

func (t *traffic) packetToHost(to int, f packetio.Frame, in *fault.Injector, comment string) {
	v := in.Frame(t.now, f.Data)
	if v.Passes() {
		t.enqueue(to, f, comment)
		return
	}
	f, dropped := t.distort(to, f, &v)
	comment = join(comment, t.explain(&v))
	switch {
	case dropped:
		t.show(to, tap.Down, f, comment)
	case v.Delay > 0:
		t.sw.Delayed(t.now.Add(v.Delay))
		for range 1 + v.Copies {
			if !t.delays.add(t.now.Add(v.Delay), to, tap.Down, f) {
				t.sw.CountDrop(to, pipeline.ReasonHoldFull, f.Packets())
				t.show(to, tap.Down, f, join(comment, "dropped: too many frames are delayed"))
			}
		}
	default:
		for range 1 + v.Copies {
			t.enqueue(to, f, comment)
		}
	}
}

// distort drops, corrupts or marks a frame, as the verdict of the fault rules says. It changes a copy of
// the frame.
func (t *traffic) distort(i int, f packetio.Frame, v *fault.Verdict) (_ packetio.Frame, dropped bool) {
	if v.Corrupt && !corruptible(&f) {
		v.Drop = true
	}
	if v.Drop {
		t.sw.CountDrop(i, pipeline.ReasonFault, f.Packets())
		return f, true
	}
	if v.Corrupt {
		f.Data = append(t.scratch.Alloc(len(f.Data)), f.Data...)
		f.FinishChecksum() // otherwise the receiving kernel would accept the damaged bytes as valid
		fault.FlipBit(f.Data, v.Bit)
	}
	if v.Mark {
		if !v.Corrupt {
			f.Data = append(t.scratch.Alloc(len(f.Data)), f.Data...)
		}
		wire.SetCE(f.Data)
	}
	return f, false
}

// corruptible reports whether a checksum of a higher layer detects a flipped bit in the frame. A
// frame without such a checksum, like ARP, is dropped instead of corrupted: on a real link the
// receiver would drop it because of the frame check sequence, and the damage would never reach a
// neighbour table. A super-frame of TCP is dropped, too, because the checksums of its segments are
// not computed yet.
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

func (t *traffic) show(i int, dir tap.Direction, f packetio.Frame, comment string) {
	if t.observing {
		t.hub.Frame(t.unixNanos(), i, dir, f, comment)
	}
}

// explain describes for captures what a verdict does to a frame, and which rules cause it: "fault
// f1 (loss): dropped".
func (t *traffic) explain(v *fault.Verdict) string {
	// If the verdict names no rule, the verdict has no effect, or a rule of kind rate delays the
	// frame only by the time that its transmission takes, which does not count as a hit.
	if !t.observing || len(v.Rules) == 0 {
		return ""
	}
	var what []string
	if v.Drop {
		what = append(what, "dropped")
	}
	if v.Corrupt && !v.Drop {
		what = append(what, fmt.Sprintf("bit %d behind the Ethernet header flipped", v.Bit))
	}
	if v.Mark && !v.Drop {
		what = append(what, "CE set")
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
		if r, ok := t.plan.Rule(id); ok {
			who[i] += " (" + string(r.Kind) + ")"
		}
	}
	return "fault " + strings.Join(who, ", ") + ": " + strings.Join(what, ", ")
}
