package lab

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"text/template"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed node.sh
var nodeScript []byte

//go:embed node.tmpl
var nodeFiles string

// Node is a node of the cluster.
type Node struct {
	lab  *Lab
	n    int
	cmd  *exec.Cmd
	done chan struct{}
}

func (n *Node) dir() string { return filepath.Join(n.lab.cfg.Dir, NodeName(n.n)) }

// Group is the name of the node's cgroup.
func (n *Node) Group() string { return n.lab.netns(n.n) }

// hierarchies are the cgroup hierarchies of version 1 in which containers are.
func hierarchies() (list []string) {
	for _, c := range []string{"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd"} {
		if st, err := os.Stat("/sys/fs/cgroup/" + c); err == nil && st.IsDir() {
			list = append(list, c)
		}
	}
	return list
}

// Start starts the node, for the first time or after Kill: as when its power comes back.
func (n *Node) Start() error {
	if err := n.files(); err != nil {
		return err
	}
	if err := n.cgroups(); err != nil {
		return err
	}
	for _, name := range []string{"stopped", "up"} {
		if err := os.Remove(filepath.Join(n.dir(), name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	f, err := os.OpenFile(filepath.Join(n.dir(), "log", "start.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close() // the process has its own descriptor
	c := &n.lab.cfg
	n.cmd = exec.Command("nsenter", "--net=/run/netns/"+n.lab.netns(n.n), "unshare", "-m", "-u", "--propagation", "unchanged", "bash", filepath.Join(n.dir(), "node.sh"))
	n.cmd.Env = append(os.Environ(), "R="+n.dir(), "NAME="+NodeName(n.n), "GROUP="+n.Group(), "CGROUPS="+strings.Join(hierarchies(), " "), "BIN="+c.Bin, "IMAGES="+strings.Join(c.Images, " "),
		"PAUSE="+c.Pause, "PROXY="+n.lab.pki.conf("proxy"), "KUBECONFIG="+n.lab.pki.conf(NodeName(n.n)), "ADDRESS="+nodeAddress(n.n))
	n.cmd.Stdout, n.cmd.Stderr = f, f
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := n.cmd.Start(); err != nil {
		return err
	}
	n.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait() // its end is what Kill wants
		close(done)
	}(n.cmd, n.done)
	return nil
}

// files writes the settings of the node's programs. The network's settings are written once: a node agent changes them.
func (n *Node) files() error {
	for _, d := range []string{"kubelet", "containerd", "log", "cni-conf", "cni-bin"} {
		if err := os.MkdirAll(filepath.Join(n.dir(), d), 0o755); err != nil {
			return err
		}
	}
	p := n.lab.pki
	data := map[string]string{
		"Pause": n.lab.cfg.Pause, "Subnet": podSubnet(n.n), "Address": nodeAddress(n.n), "CA": p.crt("ca"), "Cert": p.crt(NodeName(n.n)), "Key": p.keyOf(NodeName(n.n)), "Group": n.Group(),
	}
	all, err := template.New("node").Parse(nodeFiles)
	if err != nil {
		return err
	}
	for name, path := range map[string]string{"containerd": "containerd.toml", "kubelet": "kubelet.yaml", "conflist": "cni-conf/10-pod.conflist"} {
		path = filepath.Join(n.dir(), path)
		if _, err := os.Stat(path); err == nil {
			continue
		}
		var b bytes.Buffer
		if err := all.ExecuteTemplate(&b, name, data); err != nil {
			return err
		}
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	for _, name := range []string{"bridge", "host-local", "loopback"} {
		prog, err := os.ReadFile("/usr/lib/cni/" + name)
		if err != nil {
			return fmt.Errorf("%w: apt-get install containernetworking-plugins", err)
		}
		if err := os.WriteFile(filepath.Join(n.dir(), "cni-bin", name), prog, 0o755); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(n.dir(), "node.sh"), nodeScript, 0o755)
}

// cgroups makes the node's cgroup in each hierarchy.
func (n *Node) cgroups() error {
	for _, c := range hierarchies() {
		dir := filepath.Join("/sys/fs/cgroup", c, n.Group())
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if c != "cpuset" {
			continue
		}
		for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
			all, err := os.ReadFile("/sys/fs/cgroup/cpuset/" + f)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, f), all, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// pids lists the processes in the node's cgroups.
func (n *Node) pids() (list []int) {
	for _, c := range []string{"pids", "systemd"} {
		_ = filepath.WalkDir("/sys/fs/cgroup/"+c+"/"+n.Group(), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.Name() != "cgroup.procs" {
				return nil // what has gone meanwhile has no processes
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return nil // as above
			}
			for _, f := range strings.Fields(string(text)) {
				if pid, err := strconv.Atoi(f); err == nil {
					list = append(list, pid)
				}
			}
			return nil
		})
	}
	return list
}

// killWait bounds how long the processes of a node may take to end.
const killWait = 30 * time.Second

// Kill kills all processes of the node, as when its power fails.
func (n *Node) Kill() error {
	if n.cmd == nil {
		return nil
	}
	if err := os.WriteFile(filepath.Join(n.dir(), "stopped"), nil, 0o644); err != nil {
		return err
	}
	for end := time.Now().Add(killWait); ; time.Sleep(50 * time.Millisecond) {
		list := n.pids()
		for _, pid := range list {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended already
		}
		if len(list) == 0 {
			break
		}
		if time.Now().After(end) {
			return fmt.Errorf("node %d: processes %v do not end", n.n, list)
		}
	}
	_ = syscall.Kill(-n.cmd.Process.Pid, syscall.SIGKILL) // the programs that were before the cgroup
	<-n.done
	n.cmd = nil
	// The interfaces of the machine that has lost its power are gone, and its firewall.
	for _, args := range []string{"link del cni0"} {
		_ = exec.Command("ip", append([]string{"-n", n.lab.netns(n.n)}, strings.Fields(args)...)...).Run() // there is one only if a Pod was there
	}
	return nil
}

// KillKubelet kills the kubelet, which is started again at once.
func (n *Node) KillKubelet() error {
	text, err := os.ReadFile(filepath.Join(n.dir(), "kubelet.pid"))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	return unix.Kill(pid, unix.SIGKILL)
}

// Run runs a program in the node's namespaces, and returns what it prints.
func (n *Node) Run(args ...string) (string, error) {
	text, err := os.ReadFile(filepath.Join(n.dir(), "kubelet.pid"))
	if err != nil {
		return "", err
	}
	out, err := exec.Command("nsenter", append([]string{"-t", strings.TrimSpace(string(text)), "-m", "-n", "-u"}, args...)...).CombinedOutput()
	return string(out), err
}

// Conflist returns the file of the node's network.
func (n *Node) Conflist() string { return filepath.Join(n.dir(), "cni-conf", "10-pod.conflist") }

// Plugin returns the place of a CNI plugin of the node.
func (n *Node) Plugin(name string) string { return filepath.Join(n.dir(), "cni-bin", name) }

// remove kills the node, and removes its cgroups.
func (n *Node) remove() error {
	err := n.Kill()
	for _, c := range append(hierarchies(), "unified") { // runc makes groups in the last one, too
		root := filepath.Join("/sys/fs/cgroup", c, n.Group())
		var dirs []string
		_ = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for i := len(dirs) - 1; i >= 0; i-- {
			for end := time.Now().Add(time.Second); ; time.Sleep(20 * time.Millisecond) {
				rerr := os.Remove(dirs[i])
				if rerr == nil || errors.Is(rerr, fs.ErrNotExist) {
					break
				}
				if time.Now().After(end) {
					err = errors.Join(err, rerr)
					break
				}
			}
		}
	}
	return err
}
