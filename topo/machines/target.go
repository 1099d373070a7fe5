package machines

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"

	"github.com/rdmalab/rdmalab/rackfile"
)

// target is where ssh connects to, after its settings have been applied. Another user is no other machine,
// but another port, or another way there, may be.
type target struct{ host, port, jump, proxy string }

// parseTarget reads what `ssh -G` prints; false if it names no host.
func parseTarget(text string) (t target, ok bool) {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch strings.ToLower(key) {
		case "hostname":
			t.host = strings.ToLower(strings.TrimSuffix(value, "."))
			if a, err := netip.ParseAddr(t.host); err == nil {
				t.host = a.Unmap().String()
			}
		case "port":
			t.port = value
		case "proxyjump":
			t.jump = value
		case "proxycommand":
			t.proxy = value
		}
	}
	return t, t.host != ""
}

// target asks ssh where it would connect to; false if it does not say: the connection then tells why.
func (c *conn) target(ctx context.Context) (target, bool) {
	out, err := exec.CommandContext(ctx, "ssh", c.args("-G")...).Output()
	if err != nil {
		return target{}, false
	}
	return parseTarget(string(out))
}

// Distinct returns an error if two machines of a rack are one, as far as the settings of ssh tell. Nothing
// is connected.
func Distinct(ctx context.Context, r *rackfile.Rack) error {
	c := clientOf(r, rackfile.ClientOf(r.Name))
	targets, known := make([]target, len(c.conns)), make([]bool, len(c.conns))
	_ = c.each(func(i int, m *conn) error {
		targets[i], known[i] = m.target(ctx)
		return nil
	})
	for i := range targets {
		for k := range i {
			if known[i] && known[k] && targets[i] == targets[k] {
				a, b := r.Machines[k], r.Machines[i]
				return fmt.Errorf("machines %s (%s) and %s (%s) are one for ssh, %s port %s, and a machine has one slice of a rack: correct `ssh` of one in the rack file, or remove it",
					a.Name, a.SSH, b.Name, b.SSH, targets[i].host, targets[i].port)
			}
		}
	}
	return nil
}
