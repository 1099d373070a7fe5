// Package cni is the CNI plugin. It joins a container's network namespace to the switch of a rack
// that is up, as a guest with a link, addresses of the rack's subnets and a name, and removes the
// guest again. The library containernetworking/cni implements the protocol with the container
// runtime; topo/rack makes links and ports. The specification is CNI 1.1.0.
//
// A network is a list of plugins, in a file like /etc/cni/net.d/10-rack.conflist:
//
//	{
//	  "cniVersion": "1.0.0",
//	  "name": "rack",
//	  "plugins": [
//	    {"type": "rdmalab-cni", "rack": "default", "capabilities": {"mac": true}}
//	  ]
//	}
//
// A guest's name is HOST of CNI_ARGS; otherwise the name that podman or Kubernetes gave the
// container or pod, if it is free and a valid host name; otherwise a name made from the container's
// ID. Its MAC address is taken from runtimeConfig or CNI_ARGS (MAC), otherwise from the rack.
// Addresses are always the rack's: there is no ipam section.
package cni

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/guests"
	"github.com/rdmalab/rdmalab/topo/nl"
	"github.com/rdmalab/rdmalab/topo/rack"
)

// Program is the name of the file under which this binary is the plugin.
const Program = "rdmalab-cni"

// Error codes in addition to those of the library: the specification leaves 100 and above to
// plugins.
const (
	// codeNotReady is the code of STATUS if ADD would fail.
	codeNotReady = 50
	// codeState: the rack, the guest or its link is in the wrong state.
	codeState = 100
	// codePrivilege: the plugin lacks the rights of root.
	codePrivilege = 101
	// codeTaken: the container's interface is attached to the rack already.
	codeTaken = 102
)

// limit is how long one command of a container runtime may take.
const limit = time.Minute

// Plugin executes the commands of container runtimes. The zero value works on the racks of this
// machine.
type Plugin struct {
	// Stdout receives results; nil means standard output.
	Stdout io.Writer
	open   func(name string) (*rack.Rack, error) // replaces rack.Open in tests
}

// Called reports whether a program with arguments argv was started as the plugin: under the
// plugin's name, or without arguments but with CNI_COMMAND in the environment.
func Called(argv []string) bool {
	return filepath.Base(argv[0]) == Program || len(argv) == 1 && os.Getenv("CNI_COMMAND") != ""
}

// Main runs the plugin. The command is in the environment, the configuration on standard input.
// Main returns the exit status.
func Main() int {
	p := new(Plugin)
	funcs := skel.CNIFuncs{Add: p.Add, Del: p.Del, Check: p.Check, GC: p.GC, Status: p.Status}
	about := "rdmalab: plugs containers into the switch of a rack. See `rdmalab cni --help`"
	if e := skel.PluginMainFuncsWithError(funcs, version.All, about); e != nil {
		if err := e.Print(); err != nil {
			fmt.Fprintln(os.Stderr, "rdmalab-cni:", e, err)
		}
		return 1
	}
	return 0
}

func (p *Plugin) rackOf(c *Config) (*rack.Rack, error) {
	if p.open != nil {
		return p.open(c.Rack)
	}
	return rack.Open(c.Rack)
}

// Add executes the CNI command ADD: it makes the container a guest of the rack.
func (p *Plugin) Add(a *skel.CmdArgs) error {
	c, err := parseConfig(a.StdinData)
	if err != nil {
		return err
	}
	q, err := c.request(a)
	if err != nil {
		return err
	}
	r, err := p.rackOf(c)
	if err != nil {
		return coded(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	g, err := r.Guests().Add(ctx, q)
	if err != nil {
		return coded(err)
	}
	port, err := nl.LinkByName(r.Paths.Netns(rackfile.SwitchName), g.Port)
	if err != nil {
		return coded(err)
	}
	return p.print(result(r, &g, port.MAC), c.CNIVersion)
}

func (p *Plugin) print(res types.Result, as string) error {
	res, err := res.GetAsVersion(as)
	if err != nil {
		return types.NewError(types.ErrIncompatibleCNIVersion, "result", err.Error())
	}
	if p.Stdout == nil {
		return res.Print()
	}
	return res.PrintTo(p.Stdout)
}

// result describes a guest to the runtime: both ends of the link, and the guest's addresses. port
// is the MAC address of the switch's end. Both ends have MAC addresses, because podman expects one
// for each end that is in a namespace.
func result(r *rack.Rack, g *guests.Guest, port wire.MAC) *current.Result {
	res := &current.Result{
		CNIVersion: current.ImplementedSpecVersion,
		Interfaces: []*current.Interface{
			{Name: g.Port, Mac: port.String(), Mtu: r.Spec.LinkMTU, Sandbox: r.Paths.Netns(rackfile.SwitchName)},
			{Name: g.Ifname, Mac: g.MAC.String(), Mtu: r.Spec.LinkMTU, Sandbox: g.Netns},
		},
	}
	for _, a := range []netip.Prefix{r.Spec.Prefix4(&g.Host), r.Spec.Prefix6(&g.Host)} {
		res.IPs = append(res.IPs, &current.IPConfig{Interface: current.Int(1), Address: ipNet(a)})
	}
	return res
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// Del executes DEL: it removes the guest. It returns no error if the guest does not exist.
func (p *Plugin) Del(a *skel.CmdArgs) error {
	return p.remove(a, func(ctx context.Context, c *Config, all rack.Guests) error {
		return all.Remove(ctx, c.Name, a.ContainerID, a.IfName)
	})
}

// GC executes GC: it removes all guests of the network except those that the runtime's request
// lists.
func (p *Plugin) GC(a *skel.CmdArgs) error {
	return p.remove(a, func(ctx context.Context, c *Config, all rack.Guests) error {
		return all.Keep(ctx, c.Name, func(g *guests.Guest) bool {
			return slices.Contains(c.ValidAttachments, types.GCAttachment{ContainerID: g.Container, IfName: g.Ifname})
		})
	})
}

// remove runs f on the guests of a rack. If the rack is down, it has no guests, and remove does not
// call f.
func (p *Plugin) remove(a *skel.CmdArgs, f func(ctx context.Context, c *Config, all rack.Guests) error) error {
	c, err := parseConfig(a.StdinData)
	if err != nil {
		return err
	}
	r, err := p.rackOf(c)
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		err = f(ctx, c, r.Guests())
	}
	if errors.Is(err, rack.ErrNotUp) {
		return nil
	}
	return coded(err)
}

// Check executes CHECK: it returns an error unless the guest is as ADD left it.
func (p *Plugin) Check(a *skel.CmdArgs) error {
	c, err := parseConfig(a.StdinData)
	if err != nil {
		return err
	}
	if err := version.ParsePrevResult(&c.NetConf); err != nil {
		return types.NewError(types.ErrDecodingFailure, "prevResult", err.Error())
	}
	if c.PrevResult == nil {
		return types.NewError(types.ErrInvalidNetworkConfig, "prevResult is missing", "CHECK needs what ADD answered")
	}
	prev, err := current.NewResultFromResult(c.PrevResult)
	if err != nil {
		return types.NewError(types.ErrDecodingFailure, "prevResult", err.Error())
	}
	r, err := p.rackOf(c)
	if err != nil {
		return coded(err)
	}
	g, err := r.Guests().Check(c.Name, a.ContainerID, a.IfName, a.Netns)
	if err != nil {
		return coded(err)
	}
	for _, i := range prev.Interfaces {
		if i != nil && i.Name == a.IfName && i.Sandbox != "" && i.Mac != "" && i.Mac != g.MAC.String() {
			return types.NewError(codeState, "guest "+g.Name, fmt.Sprintf("%s has the address %v, and prevResult says %s", i.Name, g.MAC, i.Mac))
		}
	}
	return nil
}

// Status executes STATUS: it returns an error if ADD would fail now.
func (p *Plugin) Status(a *skel.CmdArgs) error {
	c, err := parseConfig(a.StdinData)
	if err != nil {
		return err
	}
	r, err := p.rackOf(c)
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		err = r.Ready(ctx)
	}
	if err != nil {
		return types.NewError(codeNotReady, "no container can be plugged now", err.Error())
	}
	return nil
}

func coded(err error) error {
	code := types.ErrInternal
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rack.ErrNotUp), errors.Is(err, rack.ErrNoSwitch), errors.Is(err, rack.ErrBusy):
		code = types.ErrTryAgainLater
	case errors.Is(err, rack.ErrPrivilege), errors.Is(err, nl.ErrPrivilege):
		code = codePrivilege
	case errors.Is(err, rack.ErrAttached):
		code = codeTaken
	case errors.Is(err, rack.ErrGuest):
		code = codeState
	case errors.Is(err, os.ErrNotExist):
		code = types.ErrUnknownContainer
	}
	return types.NewError(code, err.Error(), "")
}
