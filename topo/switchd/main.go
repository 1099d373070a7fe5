package switchd

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"time"

	"github.com/rdmalab/rdmalab/experiment/costs"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/capture/tap"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/afpacket"
	"github.com/rdmalab/rdmalab/softrnic/packetio/direct"
	"github.com/rdmalab/rdmalab/swordbox/apps"
	"github.com/rdmalab/rdmalab/topo/guests"
	"github.com/rdmalab/rdmalab/topo/nl"
	"github.com/rdmalab/rdmalab/units"
)

// EnvKeep is the environment variable that makes a switch keep its last packets, for GET /past. Its
// value is the size of the memory for these packets, like 4MiB.
const EnvKeep = "RDMALAB_KEEP"

// Place says where a switch runs. Dir is the state folder of its rack. Netns is the path of the
// network namespace with the rack's ports; "" means that of the process. Fabric carries packets of
// NICs in the same process; nil means that there are none. Gate holds back requests while the switch is
// stopped; nil means that it is never stopped so.
type Place struct {
	Dir, Netns string
	Fabric     *direct.Fabric
	Gate       *control.Gate
}

// Main runs the switch of a rack. It reads the rack's description, opens the rack's ports, serves the
// control socket, and forwards until ctx ends.
func Main(ctx context.Context, at Place, logger *log.Logger) (err error) {
	paths := rackfile.Paths{Dir: at.Dir}
	rack, err := readDescription(paths)
	if err != nil {
		return err
	}
	first, err := begun(rack, paths)
	if err != nil {
		return err
	}
	rec, err := journalOf(first, paths, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rec.Close()) }()
	links, err := memoryLinks(first, paths, at.Fabric)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, links.close()) }()
	cfg, err := configOf(first, rec, links, at)
	if err != nil {
		return err
	}
	var d *Daemon
	cfg.Described, cfg.Load = rack, loader(func() *rackfile.Rack { return d.programs.described.Load() }, cfg.Where, paths, logger)
	cfg.Describe = func() (*rackfile.Rack, error) { return readDescription(paths) }
	list, err := guests.List(paths)
	if err != nil {
		return fmt.Errorf("switch: %w", err)
	}
	for i := range list {
		cfg.Links = append(cfg.Links, Link{Host: list[i].Name, Ifname: list[i].Port, Guest: true})
	}
	cfg.Log = logger
	if text := os.Getenv(EnvKeep); text != "" {
		n, err := units.ParseSize(text)
		if err != nil {
			return fmt.Errorf("switch: %s: %w", EnvKeep, err)
		}
		cfg.Keep = int(min(n, tap.MaxKept))
	}
	d, err = New(cfg)
	if err != nil {
		return err
	}
	d.awaitHosts(ctx)
	srv, err := d.serve(paths, at.Gate)
	if err != nil {
		stopped, stop := context.WithCancel(ctx)
		stop()
		return errors.Join(err, d.Run(stopped)) // closes the ports
	}
	logger.Printf("switch of rack %s: program %s, %d ports", rack.Name, first.Switch.Program, len(cfg.Links))
	err = d.Run(ctx)
	return errors.Join(err, srv.Close())
}

// readDescription reads the rack's description, without guests.
func readDescription(paths rackfile.Paths) (*rackfile.Rack, error) {
	data, err := os.ReadFile(paths.Spec())
	if err != nil {
		return nil, fmt.Errorf("switch: rack description: %w", err)
	}
	rack, err := rackfile.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("switch: %s: %w", paths.Spec(), err)
	}
	return rack, nil
}

// hostLinks lists the links of the rack's hosts.
func hostLinks(rack *rackfile.Rack) (list []Link) {
	for _, h := range rack.Hosts {
		list = append(list, Link{Host: h.Name, Ifname: h.Port, GSO: h.GSO})
	}
	return list
}

// serve starts to serve the control socket. It returns an error if the process lacks the privilege
// to open ports.
func (d *Daemon) serve(paths rackfile.Paths, gate *control.Gate) (*control.Server, error) {
	for i := range d.ports.list {
		if err := d.ports.list[i].err; errors.Is(err, afpacket.ErrPrivilege) {
			return nil, fmt.Errorf("switch: %w", err)
		}
	}
	m := d.Mux()
	m.Gate, m.Fatal = gate, gate != nil
	return control.Serve(paths.Socket(rackfile.SwitchName), m)
}

// journalOf opens the journal of a switch. If the program has no rules, it returns an empty
// journalFile, because such a program has no journal.
func journalOf(rack *rackfile.Rack, paths rackfile.Paths, logger *log.Logger) (*journalFile, error) {
	if p, ok := apps.Lookup(rack.Switch.Program); !ok || !p.HasRules {
		return new(journalFile), nil
	}
	rec, err := openJournal(paths.Record())
	if err != nil {
		return nil, fmt.Errorf("switch: %w", err)
	}
	f := rec.Former()
	switch {
	case rec.renewed:
		logger.Printf("%s was no journal of this program, and is empty now", paths.Record())
	case len(f.Flows)+len(f.Conns) > 0:
		logger.Printf("the former incarnation of the switch has moved requests of %d flows and made %d connections: they are ended", len(f.Flows), len(f.Conns))
	}
	return rec, nil
}

// serverSilence is how long the switch waits for a silent server before it gives up the connection.
// Clients then lose their connections. The time is long, because on a busy machine the process of a
// host may not run for a while. Clients' NICs retry for about as long.
const serverSilence = time.Second

// appendHold is how long the switch holds an append while the previous append is in flight. Where
// hosts share CPUs, an answer takes milliseconds. If the switch sends an append too early, its CAS
// fails. The client's NIC does not give up meanwhile: NICs retry for half a second and more.
const appendHold = 20 * time.Millisecond

// configured returns the settings of a program that are not in the rack's description. The source
// of random numbers (QPNs, PSNs) does not use the rack's seed: a restarted switch must not repeat
// the numbers of its former incarnation.
func configured(rack *rackfile.Rack, rec *journalFile, where *apps.Where, late bool) apps.Config {
	cfg := apps.Config{
		Rand: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), Journal: rec.Journal, Silence: serverSilence, Hold: appendHold, Late: late, Nodes: apps.SteeredNodes,
		Where: where,
	}
	if rack.Slow > 0 { // the patience of hardware, which is the default: the clock makes it longer
		cfg.Silence, cfg.Hold = 0, 0
	}
	return cfg
}

// configOf returns a daemon's configuration for a rack. The ports are packet sockets, with memory
// links beside them if the rack has any.
func configOf(rack *rackfile.Rack, rec *journalFile, links links, at Place) (Config, error) {
	where := &apps.Where{Rack: rack}
	program, err := apps.New(rack, configured(rack, rec, where, false))
	if err != nil {
		return Config{}, fmt.Errorf("switch: %w", err)
	}
	cfg := Config{
		Rack: rack.Name, Seed: rack.Seed, Program: program, Self: apps.Self(rack), Queue: rack.Switch.Queue,
		Spin: rack.Switch.Spin, Faults: rack.Faults, Motion: Motion{Factor: rack.Slow}, Fabric: at.Fabric,
		Links: hostLinks(rack), HostLinks: hostLinks, Where: where,
	}
	if rack.Slow > 0 {
		if cfg.Motion.Costs, err = costs.Builtin(rack.Cost); err != nil {
			return Config{}, fmt.Errorf("switch: %w", err)
		}
	}
	if at.Fabric != nil {
		cfg.Spin = 0 // the threads of the NICs carry the packets; the loop has only timers and other frames
	}
	cfg.Open = func(i int, l Link) (packetio.Port, error) {
		var p *afpacket.Port
		err := nl.Do(at.Netns, func() (err error) {
			p, err = afpacket.Open(afpacket.Config{Ifname: l.Ifname, Mode: afpacket.Switch, Index: i, Merge: l.GSO})
			return err
		})
		if err != nil {
			return nil, err // not p: an interface that holds a nil *afpacket.Port is not nil
		}
		return links.beside(p, i, l)
	}
	cfg.NewWaiter = func(spin time.Duration, ports []packetio.Port) (packetio.Waiter, error) {
		var list []*afpacket.Port
		var memory []afpacket.Source
		for _, p := range ports {
			if both, ok := p.(*doubleLink); ok {
				if m, ok := both.memory.(afpacket.Source); ok {
					memory = append(memory, m)
				}
				p = both.wire
			}
			socket, ok := p.(*afpacket.Port)
			if !ok {
				return nil, fmt.Errorf("switch: port %T is no packet socket", p)
			}
			list = append(list, socket)
		}
		return afpacket.NewWaiterBeside(memory, spin, list...)
	}
	return cfg, nil
}
