package switchd

import (
	"context"
	"errors"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// rateEvery is how often the rates of the ports are taken.
const rateEvery = time.Second

// rate is what a port moved in the last full second.
type rate struct {
	at                time.Time
	last              [4]uint64 // received packets and bytes, sent packets and bytes
	rxPackets, rxBits uint64    // a second
	txPackets, txBits uint64
}

// openEvery is after how many looks a missing port is tried again.
const openEvery = 4

// watcher finds ports that came and links that went up or down. Opening a port takes many system calls, so it is done
// here and not in the loop, which is only bothered with changes.
type watcher struct {
	*Daemon
	looks int
	up    []bool // carriers as the loop was told
	known []packetio.Port
	err   []string // why a port is missing, as the loop was told
}

// watch runs until ctx or the loop ends.
func (d *Daemon) watch(ctx context.Context) {
	w := watcher{Daemon: d}
	tick := time.NewTicker(d.cfg.Watch)
	defer tick.Stop()
	rates := time.NewTicker(rateEvery)
	defer rates.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			err = w.look()
		case <-rates.C:
			err = d.Do(d.takeRates)
		}
		if errors.Is(err, ErrStopped) {
			return
		}
	}
}

// look is one look at all ports.
func (w *watcher) look() error {
	w.looks++
	list := *w.open.Load()
	if n := len(list) - len(w.up); n > 0 { // guests came
		w.up, w.known, w.err = append(w.up, make([]bool, n)...), append(w.known, make([]packetio.Port, n)...), append(w.err, make([]string, n)...)
	}
	for i, p := range list {
		var err error
		switch l, ok := p.io.(linker); {
		case p.link.Host == "": // a guest has gone
		case p.io == nil:
			if w.looks%openEvery == 0 {
				err = w.reopen(i, p.link)
			}
		case ok:
			err = w.carrier(i, p.io, l.LinkUp())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reopen tries to open a missing port.
func (w *watcher) reopen(i int, l Link) error {
	io, err := w.cfg.Open(i, l)
	if err == nil {
		w.err[i] = ""
		return w.install(i, l, io)
	}
	if text := err.Error(); text != w.err[i] {
		w.err[i] = text
		return w.Do(func() {
			if w.links[i] == l {
				w.ports[i].err = err
			}
		})
	}
	return nil
}

// install makes io the port of link i, unless the link has gone or has its port meanwhile.
func (d *Daemon) install(i int, l Link, io packetio.Port) error {
	used := false
	err := d.Do(func() {
		if used = d.links[i] == l && d.ports[i].io == nil; !used {
			return
		}
		d.plug(i, io, nil)
		if err := d.renewWaiter(); err != nil {
			d.log.Printf("waiter: %v", err)
		}
	})
	if !used {
		return errors.Join(err, io.Close()) // nobody will use it
	}
	return err
}

// carrier tells the loop when a link went up or down.
func (w *watcher) carrier(i int, io packetio.Port, up bool) error {
	if w.known[i] == io && w.up[i] == up {
		return nil
	}
	err := w.Do(func() { w.setCarrier(i, io, up) })
	if err == nil {
		w.known[i], w.up[i] = io, up
	}
	return err
}

// setCarrier notes whether a port's link is up.
func (d *Daemon) setCarrier(i int, io packetio.Port, up bool) {
	p := &d.ports[i]
	if p.io != io || p.carrier == up { // it was lost or replaced meanwhile
		return
	}
	p.carrier = up
	d.sw.SetPort(i, up)
	d.log.Printf("port %s (%s): carrier %v", d.links[i].Ifname, d.hosts[i], up)
}

// takeRates updates the rates of all ports.
func (d *Daemon) takeRates() {
	now := time.Now()
	for i := range d.ports {
		p := &d.ports[i]
		c := d.sw.Port(i)
		cur := [4]uint64{c.RxPackets, c.RxBytes, p.tx.packets, p.tx.bytes}
		r := &p.rate
		if s := now.Sub(r.at).Seconds(); !r.at.IsZero() && s > 0 {
			per := func(k int) uint64 { return uint64(float64(cur[k]-r.last[k])/s + 0.5) }
			r.rxPackets, r.rxBits, r.txPackets, r.txBits = per(0), 8*per(1), per(2), 8*per(3)
		}
		r.at, r.last = now, cur
	}
}
