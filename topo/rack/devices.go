package rack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// ErrDevice is the kind of an error for a network device that cannot be a port of a switch.
var ErrDevice = errors.New("device")

// takenDevice is how a network device was before it became a port. The switch changes nothing else that
// stays: its packet socket and the program that keeps frames from the kernel end with its process.
type takenDevice struct {
	Ifname string `json:"port"`
	Index  int    `json:"index"`
	Up     bool   `json:"up"`
}

// takeDevices checks the network devices of this machine that become ports, and sets them up. It writes
// before how they were, so that giveBack can set them so again at any time.
func takeDevices(s *rackfile.Rack, p rackfile.Paths) error {
	if len(onMachine(s, deviceNames(s))) == 0 {
		return nil
	}
	state, err := os.Open(rackfile.StateRoot) // its lock keeps another rack from taking the same device meanwhile
	if err != nil {
		return err
	}
	defer state.Close() // ends the lock
	if err := unix.Flock(int(state.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	var taken []takenDevice
	for _, name := range onMachine(s, deviceNames(s)) {
		d, _ := s.Devices.Named(name)
		found, err := nl.DeviceByName(p.Outside(), d.Ifname, reachedAddresses(s))
		if err == nil {
			err = refuseDevice(s, p, &d, &found)
		}
		if err != nil {
			return fmt.Errorf("%w %s: %w", ErrDevice, d.Ifname, err)
		}
		taken = append(taken, takenDevice{Ifname: d.Ifname, Index: found.Index, Up: found.Up})
	}
	data, err := json.Marshal(taken)
	if err != nil {
		return err
	}
	whole := p.Devices() + ".new" // so that there is a whole file or none
	if err := errors.Join(os.WriteFile(whole, data, 0o644), os.Rename(whole, p.Devices())); err != nil {
		return err
	}
	for _, t := range taken {
		if !t.Up {
			if err := nl.SetUpIndex(p.Outside(), t.Index, true); err != nil {
				return fmt.Errorf("%w %s: %w", ErrDevice, t.Ifname, err)
			}
		}
	}
	return nil
}

// reachedAddresses returns the addresses that this machine must reach besides: those of the rack's other machines, and that from
// which an SSH session runs this command.
func reachedAddresses(s *rackfile.Rack) (list []netip.Addr) {
	for _, m := range s.Machines {
		if m.Name != s.Machine {
			list = append(list, m.Address)
		}
	}
	from, _, _ := strings.Cut(os.Getenv("SSH_CONNECTION"), " ")
	if a, err := netip.ParseAddr(from); err == nil {
		list = append(list, a.WithZone(""))
	}
	return slices.DeleteFunc(list, func(a netip.Addr) bool { return !a.IsValid() })
}

func deviceNames(s *rackfile.Rack) (names []string) {
	for _, d := range s.Devices {
		names = append(names, d.Name)
	}
	return names
}

// refuseDevice returns why a network device cannot be a port of this rack; nil means that it can.
func refuseDevice(s *rackfile.Rack, p rackfile.Paths, d *rackfile.Device, found *nl.Device) error {
	mtu := s.LinkMTU
	for i := range s.Hosts {
		mtu = max(mtu, s.MTUOf(&s.Hosts[i]))
	}
	switch {
	case found.Loopback:
		return errors.New("it is the loopback, which carries no frames; name another device")
	case !found.Ethernet:
		return errors.New("it carries no Ethernet frames; name another device")
	case found.Master != "":
		return fmt.Errorf("it is a port of %s; `ip link set %s nomaster` frees it", found.Master, d.Ifname)
	case found.Default && !d.Uplink:
		return errors.New("this machine's default route goes out of it, and the machine would lose its network; name another device, or write `uplink: true` beside it")
	case len(found.Carries) > 0 && !d.Uplink:
		return fmt.Errorf("this machine reaches %v by it, another machine of the rack or the one from which this command is run; name another device, or write `uplink: true` beside it", found.Carries[0])
	case found.MTU < mtu:
		return fmt.Errorf("it carries packets of %d bytes, and this rack has some of %d: write `mtu: %d` in the rack file, or `ip link set %s mtu %d`", found.MTU, mtu, found.MTU, d.Ifname, mtu)
	}
	return otherRacks(p, found)
}

// otherRacks returns an error if another rack has a network device.
func otherRacks(own rackfile.Paths, found *nl.Device) error {
	names, err := List()
	if err != nil {
		return err
	}
	dev, inode, err := nl.ID(own.Outside())
	if err != nil {
		return err
	}
	for _, name := range names {
		p := rackfile.PathsOf(name)
		if p == own {
			continue
		}
		taken, err := readTaken(p)
		if err != nil {
			continue // it is being removed, or its file is damaged, which is its own trouble
		}
		odev, oinode, err := nl.ID(p.Outside())
		for _, t := range taken {
			if err == nil && t.Index == found.Index && odev == dev && oinode == inode {
				return fmt.Errorf("rack %q has it; `rdmalab down --rack %s` frees it", name, name)
			}
		}
	}
	return nil
}

func readTaken(p rackfile.Paths) (list []takenDevice, err error) {
	data, err := os.ReadFile(p.Devices())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	return list, err
}

// giveBack sets the network devices of the rack as they were before. One that has gone is left out, and of a file that
// cannot be read none was set up. The switch does not run any more.
func giveBack(p rackfile.Paths) (err error) {
	taken, _ := readTaken(p)
	for _, t := range taken {
		if t.Up {
			continue // nothing of this project sets it down
		}
		if e := nl.SetUpIndex(p.Outside(), t.Index, false); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("%w %s: %w", ErrDevice, t.Ifname, e))
		}
	}
	return err
}

// DeviceStatus describes a port that is a network device.
type DeviceStatus struct {
	// Name is that of the port, Ifname that of the device, Switch that of the switch.
	Name   string    `json:"name"`
	Ifname string    `json:"port"`
	Switch string    `json:"switch"`
	Link   LinkState `json:"link"`
}

// devices returns the states of the network devices of this machine, as their switches know them. A switch
// that does not answer has none that works.
func (o observer) devices(switches []NodeStatus) (list []DeviceStatus) {
	for i := range switches {
		var d struct {
			Ports []struct {
				Host  string `json:"host"`
				State string `json:"state"`
			} `json:"ports"`
		}
		_ = json.Unmarshal(switches[i].Daemon, &d)
		for _, dev := range o.spec.Devices.At(switches[i].Name) {
			s := DeviceStatus{Name: dev.Name, Ifname: dev.Ifname, Switch: switches[i].Name, Link: LinkNoCarrier}
			for _, p := range d.Ports {
				switch {
				case p.Host != dev.Name:
				case exists(o.paths.Cut(dev.Name)):
					s.Link = LinkDown
				case p.State == "up":
					s.Link = LinkUp
				case p.State == "missing":
					s.Link = LinkMissing
				}
			}
			list = append(list, s)
		}
	}
	return list
}
