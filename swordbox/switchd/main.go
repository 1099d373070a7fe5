package switchd

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/afpacket"
	"github.com/rdmalab/rdmalab/swordbox/apps/forward"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// programs is the list of switch programs.
var programs = map[string]func() pipeline.Program{
	"forward": func() pipeline.Program { return forward.Program{} },
}

// Programs lists the names of the switch programs.
func Programs() []string {
	var names []string
	for name := range programs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Main is the switch of a rack: it reads the rack's description below dir, opens the rack's ports in the network
// namespace that the process is in, serves the control socket, and forwards until ctx ends.
func Main(ctx context.Context, dir string, logger *log.Logger) error {
	paths := spec.Paths{Dir: dir}
	data, err := os.ReadFile(paths.Spec())
	if err != nil {
		return fmt.Errorf("switch: rack description: %w", err)
	}
	rack, err := spec.Decode(data)
	if err != nil {
		return fmt.Errorf("switch: %s: %w", paths.Spec(), err)
	}
	cfg, err := configOf(rack)
	if err != nil {
		return err
	}
	cfg.Log = logger
	d, err := New(cfg)
	if err != nil {
		return err
	}
	srv, err := d.serve(paths)
	if err != nil {
		stopped, stop := context.WithCancel(ctx)
		stop()
		return errors.Join(err, d.Run(stopped)) // closes the ports
	}
	logger.Printf("switch of rack %s: program %s, %d ports", rack.Name, rack.Switch.Program, len(cfg.Links))
	err = d.Run(ctx)
	return errors.Join(err, srv.Close())
}

// serve serves the control socket, unless a port says that this process may open none.
func (d *Daemon) serve(paths spec.Paths) (*control.Server, error) {
	for i := range d.ports {
		if err := d.ports[i].err; errors.Is(err, afpacket.ErrPrivilege) {
			return nil, fmt.Errorf("switch: %w", err)
		}
	}
	return control.Serve(paths.Socket(spec.SwitchName), d.Mux())
}

// configOf turns a rack's description into a daemon's configuration on packet sockets.
func configOf(rack *spec.Rack) (Config, error) {
	program, ok := programs[rack.Switch.Program]
	if !ok {
		return Config{}, fmt.Errorf("switch: program %q is unknown; there is %s", rack.Switch.Program, strings.Join(Programs(), ", "))
	}
	cfg := Config{
		Rack: rack.Name, Seed: rack.Seed, Program: program(), Queue: rack.Switch.Queue,
		Spin: rack.Switch.Spin, Faults: rack.Faults,
	}
	for _, h := range rack.Hosts {
		cfg.Links = append(cfg.Links, Link{Host: h.Name, Ifname: h.Port})
	}
	cfg.Open = func(i int) (packetio.Port, error) {
		p, err := afpacket.Open(afpacket.Config{Ifname: cfg.Links[i].Ifname, Mode: afpacket.Switch, Index: i})
		if err != nil {
			return nil, err // not p: a nil *Port is no nil Port
		}
		return p, nil
	}
	cfg.NewWaiter = func(spin time.Duration, ports []packetio.Port) (packetio.Waiter, error) {
		list := make([]*afpacket.Port, len(ports))
		for i, p := range ports {
			list[i], ok = p.(*afpacket.Port)
			if !ok {
				return nil, fmt.Errorf("switch: port %T is no packet socket", p)
			}
		}
		return afpacket.NewWaiter(spin, list...)
	}
	return cfg, nil
}
