package exercise

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/rack"
)

// silentServer breaks one memory server in one of several ways. The learner finds which and repairs it.
var silentServer = Exercise{
	Name: "silent-server", Answers: []string{"server"}, needs: twoServers, prepare: prepareSilent, check: checkSilent,
}

func twoServers(r *rackfile.Rack) error {
	if n := len(r.ByRole(rackfile.Memory)); n < 2 {
		return fmt.Errorf("this exercise needs a rack with two memory servers or more, and rack %q has %d: choose another by --rack", r.Name, n)
	}
	return nil
}

// ailment is a way in which a server becomes silent.
type ailment struct {
	name string
	do   func(context.Context, *Lab, string) error
}

var ailments = []ailment{
	{"the host has crashed", func(ctx context.Context, l *Lab, host string) error { return l.Rack.Crash(ctx, host) }},
	{"its NIC has crashed", func(ctx context.Context, l *Lab, host string) error {
		return l.ask(ctx, host, http.MethodPost, hostd.PathNIC, hostd.NICRequest{State: hostd.StateDown}, nil)
	}},
	{"its link is cut", func(ctx context.Context, l *Lab, host string) error { return l.Rack.Link(ctx, host, false) }},
	{"the switch loses all its answers", func(ctx context.Context, l *Lab, host string) error {
		_, err := l.inject(ctx, fault.Rule{Link: host, Dir: fault.Up, Kind: fault.Loss})
		return err
	}},
}

func prepareSilent(ctx context.Context, l *Lab) error {
	servers := l.Rack.Spec.ByRole(rackfile.Memory)
	server := servers[l.random.IntN(len(servers))].Name
	ill := ailments[l.random.IntN(len(ailments))]
	l.state.Server, l.state.Fault = server, ill.name
	return ill.do(ctx, l, server)
}

func checkSilent(ctx context.Context, l *Lab, r *Report) error {
	if answer := r.answers["server"]; answer == "" {
		r.add(false, "", "server: no answer; give it by --answer server=NAME")
	} else {
		r.add(answer == l.state.Server, "server="+answer+": "+l.state.Fault, "server="+answer+" is not the one that was silent")
	}
	clients := l.Rack.Spec.ByRole(rackfile.Compute)
	broken, errs := make([][]string, len(clients)), make([]error, len(clients))
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() { broken[i], errs[i] = l.verify(ctx, clients[i]) })
	}
	all.Wait()
	for i := range clients {
		r.add(len(broken[i]) == 0, "all paths from "+clients[i].Name+" work",
			fmt.Sprintf("no path from %s to %s", clients[i].Name, strings.Join(broken[i], ", ")))
	}
	return errors.Join(errs...)
}

// pathPatience bounds the verification of the paths of one host.
const pathPatience = 15 * time.Second

// verify returns the memory servers to which a compute host has no path that works.
func (l *Lab) verify(ctx context.Context, from rackfile.Host) (broken []string, err error) {
	for _, to := range l.Rack.Spec.ByRole(rackfile.Memory) {
		if from.Reaches(&to) {
			broken = append(broken, to.Name)
		}
	}
	if status, err := l.Rack.Status(ctx); err != nil {
		return nil, err
	} else if down := silentIn(status, broken); len(down) > 0 {
		return down, nil // known without waiting for them
	}
	ctx, cancel := context.WithTimeout(ctx, pathPatience)
	defer cancel()
	req := hostd.VerifyRequest{To: slices.Clone(broken)}
	// What the stream does not confirm in time is broken; its error adds nothing to that.
	_ = control.Items(ctx, l.Rack.Control(from.Name), http.MethodPost, hostd.PathVerify, req, func(item hostd.VerifyItem) error {
		if item.OK {
			broken = slices.DeleteFunc(broken, func(name string) bool { return name == item.To })
		}
		return nil
	})
	return broken, nil
}

// silentIn returns those of the hosts that cannot answer, as the rack's status says.
func silentIn(s rack.Status, hosts []string) (down []string) {
	for i := range s.Hosts {
		if n := &s.Hosts[i]; slices.Contains(hosts, n.Name) && n.State != rack.StateUp {
			down = append(down, n.Name)
		}
	}
	return down
}
