package switchd

import (
	"context"
	"errors"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// rateEvery is the interval at which the rates of the ports are computed.
const rateEvery = time.Second

// rate is the traffic of a port in the last full second.
type rate struct {
	at                time.Time
	last              [4]uint64 // counters at the time `at`: received packets and bytes, sent packets and bytes
	rxPackets, rxBits uint64    // per second
	txPackets, txBits uint64
}

// openEvery says how rarely the watcher tries to open missing ports: in one of openEvery checks.
const openEvery = 4

// watcher detects ports that have appeared, and links that have gone up or down. It has a goroutine
// of its own, because opening a port takes many system calls. It passes only changes to the loop.
type watcher struct {
	commands *commands
	ports    *ports
	guests   *guestControl
	looks    int             // how many checks have begun
	up       []bool          // which links have a carrier, as last reported to the loop
	known    []packetio.Port // the ports to which the entries of up belong
	err      []string        // why ports are missing, as last reported to the loop
}

// watchPorts runs the watcher until ctx ends or the loop has ended.
func (d *Daemon) watchPorts(ctx context.Context) {
	w := watcher{commands: d.commands, ports: d.ports, guests: d.guests}
	tick := time.NewTicker(d.watch)
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
			err = d.commands.Do(d.ports.takeRates)
		}
		if errors.Is(err, ErrStopped) {
			return
		}
	}
}

func (w *watcher) look() error {
	w.looks++
	list := *w.ports.open.Load()
	if n := len(list) - len(w.up); n > 0 { // guests were added
		w.up, w.known, w.err = append(w.up, make([]bool, n)...), append(w.known, make([]packetio.Port, n)...), append(w.err, make([]string, n)...)
	}
	for i, p := range list {
		var err error
		switch l, ok := p.io.(linker); {
		case p.link.Host == "": // the guest was removed
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

func (w *watcher) reopen(i int, l Link) error {
	err := w.guests.open(i, l)
	switch {
	case err == nil:
		w.err[i] = ""
		return nil
	case errors.Is(err, ErrStopped):
		return err
	}
	if text := err.Error(); text != w.err[i] {
		w.err[i] = text
		return w.commands.Do(func() {
			if w.ports.links[i] == l {
				w.ports.list[i].err = err
			}
		})
	}
	return nil
}

// carrier reports to the loop that a link has gone up or down.
func (w *watcher) carrier(i int, io packetio.Port, up bool) error {
	if w.known[i] == io && w.up[i] == up {
		return nil
	}
	err := w.commands.Do(func() { w.ports.setCarrier(i, io, up) })
	if err == nil {
		w.known[i], w.up[i] = io, up
	}
	return err
}
