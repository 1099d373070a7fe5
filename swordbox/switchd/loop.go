package switchd

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/tap"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// maxWaitErrors is how often in a row waiting may fail.
const maxWaitErrors = 100

// loop runs rounds until ctx ends.
func (d *Daemon) loop(ctx context.Context) error {
	failed := 0
	for ctx.Err() == nil {
		d.runCommands()
		if d.round() {
			continue
		}
		err := d.waiter.Wait(d.clk.Until(d.deadline()))
		if err == nil {
			failed = 0
			continue
		}
		// A port was closed under the waiter: a Recv of the next round says which.
		if failed++; failed > maxWaitErrors {
			return fmt.Errorf("switch: wait: %w", err)
		}
		if err := d.renewWaiter(); err != nil {
			return fmt.Errorf("switch: wait: %w", err)
		}
	}
	return nil
}

// deadline is when the next round must be, if no frame comes before.
func (d *Daemon) deadline() clock.Time { return clock.Min(d.delays.next(), d.sw.Deadline()) }

// round moves everything that is there one step, and reports whether there was anything. The memory of a round's
// frames is valid until the next round: a port's by its contract, the rest because it is reset here.
func (d *Daemon) round() (busy bool) {
	d.now = d.clk.Now()
	d.observing = d.hub.Active()
	d.sw.Observe(d.observing)
	d.out.Reset()
	d.scratch.Reset()
	for i := range d.ports {
		p := &d.ports[i]
		if p.io == nil {
			continue
		}
		n, err := p.io.Recv(&p.rx)
		if err != nil {
			d.lost(i, err)
			continue
		}
		busy = busy || n > 0
		for _, f := range p.rx.Frames {
			d.fromHost(i, f)
		}
	}
	for range MaxDelayed { // a delay of nothing cannot keep the round going for ever
		if d.delays.next() > d.now {
			break
		}
		d.undelay()
		busy = true
	}
	if d.sw.Deadline() <= d.now {
		start := len(d.out.Frames)
		d.sw.Tick(d.now, &d.out)
		d.toHosts(start, d.sw.Notes())
		busy = true
	}
	d.flush()
	return busy
}

// undelay sends the first delayed frame on its way.
func (d *Daemon) undelay() {
	e := d.delays.pop(&d.scratch)
	if e.dir == tap.Up {
		d.switched(e.port, e.frame, "", true)
		return
	}
	if d.ports[e.port].io == nil {
		d.sw.CountDrop(e.port, pipeline.ReasonPortDown, e.frame.Packets())
		return
	}
	d.enqueue(e.port, e.frame, "left after its delay")
}

// switched hands a frame to the pipeline and what comes out to the egress side. comment says what faults did to it on
// the way up; late says that it was captured before.
func (d *Daemon) switched(in int, f packetio.Frame, comment string, late bool) {
	start := len(d.out.Frames)
	d.sw.Frame(d.now, in, f, &d.out)
	if !d.observing {
		d.toHosts(start, nil)
		return
	}
	notes := d.sw.Notes()
	for _, n := range notes {
		if n.Out < 0 {
			comment = join(comment, d.comment(n, ", to "))
		}
	}
	if !late || comment != "" {
		d.hub.Frame(d.unixNanos(), in, tap.Up, f, comment)
	}
	d.toHosts(start, notes)
}

// toHosts passes what the pipeline sent, from index start of out on, to the egress side.
func (d *Daemon) toHosts(start int, notes []pipeline.Note) {
	for k := start; k < len(d.out.Frames); k++ {
		comment := ""
		for _, n := range notes {
			if n.Out == k {
				comment = join(comment, d.comment(n, ", from "))
			}
		}
		f := d.out.Frames[k]
		d.toHost(f.Port, f, comment)
	}
}

// comment is the text of a note, with the link of the frame on the other side.
func (d *Daemon) comment(n pipeline.Note, side string) string {
	if n.Peer < 0 {
		return n.Text
	}
	return n.Text + side + d.hosts[n.Peer]
}

// enqueue puts a frame into a port's egress queue.
func (d *Daemon) enqueue(to int, f packetio.Frame, comment string) {
	f.Port = to
	if !d.ports[to].queue.Offer(f) {
		d.sw.CountDrop(to, pipeline.ReasonQueueFull, f.Packets())
		if d.observing {
			comment = join(comment, "dropped: egress queue of "+d.hosts[to]+" is full")
		}
	}
	if d.observing {
		d.hub.Frame(d.unixNanos(), to, tap.Down, f, comment)
	}
}

// flush empties all egress queues.
func (d *Daemon) flush() {
	for i := range d.ports {
		p := &d.ports[i]
		if p.queue.Len() == 0 {
			continue
		}
		if p.io == nil {
			d.sw.CountDrop(i, pipeline.ReasonPortDown, p.queue.Discard())
			continue
		}
		packets, bytes, refused, err := p.queue.Flush(p.io)
		p.tx.packets += uint64(packets)
		p.tx.bytes += uint64(bytes)
		if refused > 0 {
			d.sw.CountDrop(i, pipeline.ReasonNoTx, refused)
		}
		if err != nil {
			d.lost(i, err)
		}
	}
}

// plug installs a port that was opened, or notes why it is missing.
func (d *Daemon) plug(i int, io packetio.Port, err error) {
	p := &d.ports[i]
	p.io, p.err = io, err
	if err != nil {
		p.io = nil
		return
	}
	p.carrier = true
	if l, ok := io.(linker); ok {
		p.carrier = l.LinkUp()
	}
	d.sw.SetPort(i, p.carrier)
	d.log.Printf("port %s (%s) is open, carrier %v", d.links[i].Ifname, d.hosts[i], p.carrier)
}

// lost handles a port that became unusable.
func (d *Daemon) lost(i int, err error) {
	p := &d.ports[i]
	d.log.Printf("port %s (%s) is lost: %v", d.links[i].Ifname, d.hosts[i], err)
	if cerr := p.io.Close(); cerr != nil {
		d.log.Printf("port %s: close: %v", d.links[i].Ifname, cerr)
	}
	p.io, p.err, p.carrier = nil, err, false
	d.sw.SetPort(i, false)
	d.sw.CountDrop(i, pipeline.ReasonPortDown, p.queue.Discard())
	if err := d.renewWaiter(); err != nil {
		d.log.Printf("waiter: %v", err)
	}
}

// renewWaiter makes the loop wait for the ports that are there now.
func (d *Daemon) renewWaiter() error {
	var list []packetio.Port
	for i := range d.ports {
		if d.ports[i].io != nil {
			list = append(list, d.ports[i].io)
		}
	}
	w, err := d.cfg.NewWaiter(d.cfg.Spin, list)
	if err != nil {
		return err
	}
	old := d.waiter
	d.waiter = w
	d.waking.Store(&w)
	d.publish()
	if old != nil {
		return old.Close()
	}
	return nil
}

// publish shows the ports to watch.
func (d *Daemon) publish() {
	list := make([]opened, len(d.ports))
	for i := range d.ports {
		list[i] = opened{d.links[i], d.ports[i].io}
	}
	d.open.Store(&list)
}

func (d *Daemon) closePorts() error {
	var errs []error
	for i := range d.ports {
		if p := &d.ports[i]; p.io != nil {
			errs = append(errs, p.io.Close())
			p.io = nil
		}
	}
	return errors.Join(errs...)
}

// join strings comments together.
func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}
