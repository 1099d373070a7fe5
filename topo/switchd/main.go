package switchd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/costs"
	"github.com/rdmalab/rdmalab/softrnic/capture/tap"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/afpacket"
	"github.com/rdmalab/rdmalab/softrnic/packetio/direct"
	"github.com/rdmalab/rdmalab/softrnic/packetio/trunkport"
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
//
// Name is that of the switch; "" means rackfile.SwitchName. Outside says that trunks to other machines go
// out from the network namespace of the process, and not from the one that is pinned in Dir.
type Place struct {
	Dir, Netns string
	Name       string
	Outside    bool
	Fabric     *direct.Fabric
	Gate       *control.Gate
}

// sharedSlots is the number of frames in the receive ring of a port of a compact rack, which has no
// RoCEv2: with 512, as other ports have, the rings took half of the memory of a host in the process.
const sharedSlots = 128

// Main runs the switch of a rack. It reads the rack's description, opens the rack's ports, serves the
// control socket, and forwards until ctx ends.
func Main(ctx context.Context, at Place, logger *slog.Logger) (err error) {
	at.Name = cmp.Or(at.Name, rackfile.SwitchName)
	paths := rackfile.Paths{Dir: at.Dir}
	rack, err := readDescription(paths, at.Name)
	if err != nil {
		return err
	}
	own := files{journal: paths.Record(at.Name), program: paths.Program(at.Name)}
	first, err := begun(rack, own)
	if err != nil {
		return err
	}
	rec, err := journalOf(first, own, logger)
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
	cfg.Described, cfg.Load = rack, loader(func() *rackfile.Rack { return d.programs.described.Load() }, cfg.Where, own, logger)
	cfg.Describe = func() (*rackfile.Rack, error) { return readDescription(paths, at.Name) }
	list, err := guests.List(paths)
	if err != nil {
		return fmt.Errorf("switch: %w", err)
	}
	if at.Name != rack.SwitchNames()[0] {
		list = nil // guests are at the first switch
	}
	for i := range list {
		cfg.Links = append(cfg.Links, Link{Host: list[i].Name, Ifname: list[i].Port, Guest: true})
	}
	cfg.Log = logger
	if rack.Fabric != nil {
		cfg.Faults.Kept = paths.TrunkFaults(at.Name)
	}
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
	srv, err := d.serve(paths.Socket(at.Name), at.Gate)
	if err != nil {
		stopped, stop := context.WithCancel(ctx)
		stop()
		return errors.Join(err, d.Run(stopped)) // closes the ports
	}
	logger.Info("switch is up", "name", at.Name, "rack", rack.Name, "program", first.Switch.Program, "ports", len(cfg.Links))
	err = d.Run(ctx)
	logger.Info("switch ends", "name", at.Name)
	return errors.Join(err, srv.Close())
}

// files are the files of one switch: its journal, and the name of a program that was loaded.
type files struct{ journal, program string }

// readDescription reads the rack's description, as the switch called name has it, without guests.
func readDescription(paths rackfile.Paths, name string) (*rackfile.Rack, error) {
	data, err := os.ReadFile(paths.Spec())
	if err != nil {
		return nil, fmt.Errorf("switch: rack description: %w", err)
	}
	rack, err := rackfile.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("switch: %s: %w", paths.Spec(), err)
	}
	if !rack.IsSwitch(name) {
		return nil, fmt.Errorf("switch: rack %s has no switch %q; it has %v", rack.Name, name, rack.SwitchNames())
	}
	return rack.OnSwitch(name), nil
}

// linksAt returns a function that lists the links of a switch: those of the hosts that are connected to
// it, its trunks to others, and its network devices.
func linksAt(name string) func(*rackfile.Rack) []Link {
	return func(rack *rackfile.Rack) []Link {
		return slices.Concat(hostLinks(rack, name), trunkLinks(rack, name), deviceLinks(rack, name))
	}
}

func hostLinks(rack *rackfile.Rack, name string) (list []Link) {
	for _, h := range rack.Hosts {
		if rack.LeafOf(&h) != name {
			continue
		}
		list = append(list, Link{Host: h.Name, Ifname: h.Port, GSO: h.GSO})
	}
	return list
}

// serve starts to serve the control socket. It returns an error if the process lacks the privilege
// to open ports.
func (d *Daemon) serve(socket string, gate *control.Gate) (*control.Server, error) {
	for i := range d.ports.list {
		if err := d.ports.list[i].err; errors.Is(err, afpacket.ErrPrivilege) {
			return nil, fmt.Errorf("switch: %w", err)
		}
	}
	m := d.Mux()
	m.Gate, m.Fatal = gate, gate != nil
	return control.Serve(socket, m)
}

// journalOf opens the journal of a switch. If the program has no rules, it returns an empty
// journalFile, because such a program has no journal.
func journalOf(rack *rackfile.Rack, own files, logger *slog.Logger) (*journalFile, error) {
	if p, ok := apps.Lookup(rack.Switch.Program); !ok || !p.HasRules {
		return new(journalFile), nil
	}
	rec, err := openJournal(own.journal)
	if err != nil {
		return nil, fmt.Errorf("switch: %w", err)
	}
	f := rec.Former()
	switch {
	case rec.renewed:
		logger.Warn("the file was no journal of this program, and is empty now", "file", own.journal)
	case len(f.Flows)+len(f.Conns) > 0:
		logger.Warn("flows whose requests the former incarnation of the switch has moved, and connections that it made, are ended", "flows", len(f.Flows), "connections", len(f.Conns))
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

// wakeTime is how long the daemon needs to wake up for a deadline, in real time: requests that the switch paces leave in
// bursts of what their rate gives in this time.
const wakeTime = 50 * time.Microsecond

// configOf returns a daemon's configuration for a rack. The ports are packet sockets, with memory
// links beside them if the rack has any.
func configOf(rack *rackfile.Rack, rec *journalFile, links links, at Place) (Config, error) {
	at.Name = cmp.Or(at.Name, rackfile.SwitchName)
	where := &apps.Where{Rack: rack, Wake: wakeTime / time.Duration(rack.Factor())}
	if rack.Fabric != nil {
		where.Port = func(node string) int {
			if elsewhere(rack, node) {
				return len(hostLinks(rack, at.Name)) // the first trunk, for which all are taken
			}
			return slices.IndexFunc(hostLinks(rack, at.Name), func(l Link) bool { return l.Host == node })
		}
		for i := range trunkLinks(rack, at.Name) {
			where.Trunks = append(where.Trunks, len(hostLinks(rack, at.Name))+i)
		}
	}
	program, err := apps.New(rack, configured(rack, rec, where, false))
	if err != nil {
		return Config{}, fmt.Errorf("switch: %w", err)
	}
	cfg := Config{
		Rack: rack.Name, Seed: rack.Seed, Program: program, Self: apps.Self(rack), Queue: rack.Switch.Queue,
		Spin: rack.Switch.Spin, Faults: Faults{Rules: rack.Faults}, Motion: Motion{Factor: rack.Slow}, Fabric: at.Fabric,
		Links: linksAt(at.Name)(rack), HostLinks: linksAt(at.Name), Where: where,
	}
	if rack.Slow > 0 {
		if cfg.Motion.Costs, err = costs.Builtin(rack.Cost); err != nil {
			return Config{}, fmt.Errorf("switch: %w", err)
		}
	}
	slots := 0
	if at.Fabric != nil {
		cfg.Spin = 0 // the threads of the NICs carry the packets; the loop has only timers and other frames
		slots = sharedSlots
	}
	trunks := trunkOpener{paths: rackfile.Paths{Dir: at.Dir}, rack: rack.Name, limit: longestFrame(rack), own: at.Netns}
	if !at.Outside {
		trunks.outside = trunks.paths.Outside()
	}
	cfg.Open = func(i int, l Link) (packetio.Port, error) {
		switch {
		case l.Far != (Far{}):
			return trunks.open(i, l)
		case l.Device:
			return openDevice(trunks.paths, i, l)
		}
		var p *afpacket.Port
		err := nl.Do(at.Netns, func() (err error) {
			p, err = afpacket.Open(afpacket.Config{Ifname: l.Ifname, Mode: afpacket.Switch, Index: i, Merge: l.GSO, Slots: slots, Unaddressed: true})
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
			if t, ok := p.(*trunkport.Port); ok {
				memory = append(memory, t)
				continue
			}
			if d, ok := p.(*devicePort); ok {
				p = d.wire
			}
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
