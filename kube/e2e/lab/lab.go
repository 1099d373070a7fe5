// Package lab runs a Kubernetes cluster on one machine: a control plane in a network namespace, and nodes with a real kubelet
// and containerd in namespaces and cgroups of their own. It is for tests. It needs root, cgroups v1 or hybrid, the programs of
// e2e/binaries.sh, and the apt packages etcd-server, containerd, runc, containernetworking-plugins, iptables, iproute2.
package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Config says what the cluster is made of.
type Config struct {
	// Dir is an empty folder for all that the cluster keeps.
	Dir string
	// Bin is the folder with the programs of Kubernetes.
	Bin string
	// Nodes is how many nodes there are, from 0 to 9; with 0 there is only the control plane, and Bin needs no kubelet.
	Nodes int
	// Images are files of images that every node gets. Pause is the name of that of Pods' networks.
	Images []string
	Pause  string
	// API are further flags of the API server.
	API []string
	// Log gets a line for each step.
	Log func(format string, args ...any)
}

// Lab is a cluster that runs.
type Lab struct {
	cfg    Config
	id     string // in the names of namespaces and cgroups
	pki    *pki
	parts  map[string]*part // of the control plane, and what runs beside it, by name
	beside []string         // the names of these others, in the order in which they have begun
	nodes  []*Node
}

// Start starts a cluster. After an error nothing of it is left.
func Start(ctx context.Context, cfg Config) (*Lab, error) {
	l := &Lab{cfg: cfg, id: fmt.Sprintf("rk%d", os.Getpid()%100000), parts: make(map[string]*part)}
	if err := l.start(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Lab) start(ctx context.Context) (err error) {
	if l.pki, err = newPKI(filepath.Join(l.cfg.Dir, "pki"), l.cfg.Nodes); err != nil {
		return err
	}
	if err := l.network(); err != nil {
		return err
	}
	if err := l.control(ctx); err != nil {
		return err
	}
	for n := 1; n <= l.cfg.Nodes; n++ {
		node := &Node{lab: l, n: n}
		l.nodes = append(l.nodes, node)
		if err := node.Start(); err != nil {
			return err
		}
	}
	return nil
}

// Node returns a node, counted from 1.
func (l *Lab) Node(n int) *Node { return l.nodes[n-1] }

// Close ends everything that Start has begun.
func (l *Lab) Close() error {
	var errs []error
	for _, n := range l.nodes {
		errs = append(errs, n.remove())
	}
	for _, name := range append(l.beside, "scheduler", "controller-manager", "apiserver", "etcd") {
		l.Stop(name)
	}
	for n := range l.cfg.Nodes + 1 {
		_ = exec.Command("ip", "netns", "del", l.netns(n)).Run() // it may not be there
	}
	return errors.Join(errs...)
}

// netns returns the name of the namespace of a node, or of the control plane (0).
func (l *Lab) netns(n int) string {
	if n == 0 {
		return l.id + "c"
	}
	return fmt.Sprintf("%sn%d", l.id, n)
}

// Netns returns the path of the namespace of the control plane, in which the API server listens.
func (l *Lab) Netns() string { return "/run/netns/" + l.netns(0) }

// Kubeconfig returns the file by which an administrator reaches the API server from Netns.
func (l *Lab) Kubeconfig() string { return l.pki.conf("admin") }

// NodeName returns the name of a node in the cluster.
func NodeName(n int) string { return fmt.Sprintf("n%d", n) }

// Addresses of the LAN that the control plane and the nodes have in common.
const apiAddress = "192.168.240.1"

func nodeAddress(n int) string { return fmt.Sprintf("192.168.240.%d", 10+n) }
func podSubnet(n int) string   { return fmt.Sprintf("10.244.%d.0/24", n) }

// network makes the namespaces and the LAN between them.
func (l *Lab) network() error {
	c := l.netns(0)
	steps := []string{
		"netns add " + c, "-n " + c + " link set lo up",
		"-n " + c + " link add br0 mtu 1500 type bridge", "-n " + c + " addr add " + apiAddress + "/24 dev br0", "-n " + c + " link set br0 up",
	}
	for n := 1; n <= l.cfg.Nodes; n++ {
		ns := l.netns(n)
		steps = append(steps, "netns add "+ns, "-n "+ns+" link set lo up",
			fmt.Sprintf("-n %s link add p%d type veth peer name eth0 netns %s", c, n, ns), fmt.Sprintf("-n %s link set p%d master br0 up", c, n),
			fmt.Sprintf("-n %s addr add %s/24 dev eth0", ns, nodeAddress(n)), "-n "+ns+" link set eth0 up", "-n "+ns+" route add default via "+apiAddress,
			fmt.Sprintf("-n %s route add %s via %s", c, podSubnet(n), nodeAddress(n)),
			"netns exec "+ns+" sysctl -qw net.ipv4.ip_forward=1")
	}
	for n := 1; n <= l.cfg.Nodes; n++ {
		for o := 1; o <= l.cfg.Nodes; o++ {
			if o != n {
				steps = append(steps, fmt.Sprintf("-n %s route add %s via %s", l.netns(n), podSubnet(o), nodeAddress(o)))
			}
		}
	}
	for _, s := range steps {
		if out, err := exec.Command("ip", strings.Fields(s)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", s, err, out)
		}
	}
	return nil
}

// Cut cuts a node off the network, or ends that. Its processes go on.
func (l *Lab) Cut(n int, cut bool) error {
	state := "up"
	if cut {
		state = "down"
	}
	out, err := exec.Command("ip", "-n", l.netns(0), "link", "set", fmt.Sprintf("p%d", n), state).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// Kubectl runs kubectl as an administrator, with in as its standard input, and returns what it prints.
func (l *Lab) Kubectl(ctx context.Context, in string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", l.netns(0), "kubectl", "--kubeconfig", l.Kubeconfig()}, args...)...)
	cmd.Stdin = strings.NewReader(in)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// await calls f until it returns nil, for at most wait.
func await(ctx context.Context, wait time.Duration, f func() error) error {
	for end := time.Now().Add(wait); ; {
		err := f()
		if err == nil || time.Now().After(end) || ctx.Err() != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}
