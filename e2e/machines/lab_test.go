package machines

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// lab is machines on a bridge, and a client from which rdmalab is called.
type lab struct {
	dir      string
	lan      *exec.Cmd // keeps the network namespace with the bridge
	machines map[string]*machine
	client   *machine
	joined   int // interfaces that the bridge has had
}

// machine is a tree of namespaces. The first process of its pid namespace is its sshd, or, of the client,
// one that sleeps.
type machine struct {
	name, address, dir string
	holder             *exec.Cmd
	pid                int    // of the first process, outside
	port               string // its end at the bridge
}

const prefix = "10.213.0."

// newLab makes machines m1 and so on, with keys that let the client in.
func newLab(n int) *lab {
	GinkgoHelper()
	l := &lab{dir: GinkgoT().TempDir(), machines: map[string]*machine{}}
	run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", l.dir+"/key")
	copyOf(l.dir+"/key.pub", l.dir+"/authorized")
	l.lan = exec.Command("unshare", "--net", "sleep", "infinity")
	Expect(l.lan.Start()).To(Succeed())
	DeferCleanup(func() { end(l.lan) })
	awaitNet(l.lan.Process.Pid)
	l.onLAN("ip", "link", "add", "lan", "type", "bridge")
	l.onLAN("ip", "link", "set", "lan", "up")
	l.client = &machine{name: "client", address: prefix + "100", dir: l.dir + "/client"}
	l.client.files(l.dir)
	l.start(l.client)
	DeferCleanup(l.stop)
	for i := range n {
		m := &machine{name: "m" + strconv.Itoa(i+1), address: prefix + strconv.Itoa(i+1)}
		m.dir = l.dir + "/" + m.name
		m.files(l.dir)
		l.machines[m.name] = m
		l.start(m)
	}
	return l
}

// files writes what a machine's programs read: its own rdmalab and keys, and the settings of ssh.
func (m *machine) files(lab string) {
	GinkgoHelper()
	Expect(os.MkdirAll(m.dir+"/bin", 0o755)).To(Succeed())
	Expect(os.Symlink(fixture.Binary(), m.dir+"/bin/rdmalab")).To(Succeed())
	run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", m.dir+"/host")
	public, err := os.ReadFile(m.dir + "/host.pub")
	Expect(err).NotTo(HaveOccurred())
	known, err := os.OpenFile(lab+"/known", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	Expect(err).NotTo(HaveOccurred())
	_, err = fmt.Fprintf(known, "%s %s", m.address, public)
	Expect(err).NotTo(HaveOccurred())
	Expect(known.Close()).To(Succeed())
	write(m.dir+"/sshd_config", fmt.Sprintf(`ListenAddress %s
HostKey %s/host
AuthorizedKeysFile %s/authorized
StrictModes no
UsePAM no
PidFile none
SetEnv PATH=%s/bin:/usr/bin:/bin
`, m.address, m.dir, lab, m.dir), 0o600)
	write(m.dir+"/ssh_config", fmt.Sprintf("IdentityFile %s/key\nIdentitiesOnly yes\nUserKnownHostsFile %s/known\nGlobalKnownHostsFile none\nStrictHostKeyChecking yes\n", lab, lab), 0o600)
	write(m.dir+"/bin/ssh", fmt.Sprintf("#!/bin/sh\nexec /usr/bin/ssh -F %s/ssh_config \"$@\"\n", m.dir), 0o755)
}

// boot is what the first process of a machine does. Its arguments are the machine's name and address, the
// place of cgroup2, a cgroup for the machine, and the program that it becomes.
const boot = `set -e
mount --make-rprivate /
mount -t proc proc /proc
grep -o ' /run/rdmalab/[^ ]*' /proc/mounts | sort -r | while read p; do umount -l "$p" 2>/dev/null || true; done # of racks of the tests' machine, which may go away meanwhile
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/sshd
mount --bind "$4" "$3"
hostname "$1"
ip link set lo up
until ip link show eth0 >/dev/null 2>&1; do sleep 0.01; done
ip addr add "$2/24" dev eth0
ip link set eth0 up
shift 4
exec "$@"
`

// start starts a machine, or starts it again after kill.
func (l *lab) start(m *machine) {
	GinkgoHelper()
	group := m.group()
	Expect(os.Mkdir(group, 0o755)).To(Succeed())
	program := []string{"/usr/sbin/sshd", "-D", "-E", m.dir + "/log", "-f", m.dir + "/sshd_config"}
	if m == l.client {
		program = []string{"/bin/sh", "-c", "sleep infinity & wait"}
	}
	args := append([]string{"--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child=KILL", "sh", "-c", boot, "boot", m.name, m.address, cgroups(), group}, program...)
	m.holder = exec.Command("unshare", args...)
	var said bytes.Buffer
	m.holder.Stderr = &said
	Expect(m.holder.Start()).To(Succeed())
	Eventually(func() int { m.pid = child(m.holder.Process.Pid); return m.pid }).Should(BeNumerically(">", 0))
	awaitNet(m.pid)
	l.joined++
	m.port = fmt.Sprintf("port%d", l.joined)
	port := m.port
	l.onLAN("ip", "link", "add", port, "master", "lan", "type", "veth", "peer", "name", "eth0", "address", m.mac(), "netns", strconv.Itoa(m.pid))
	l.onLAN("ip", "link", "set", port, "up")
	if m != l.client {
		Eventually(func() error {
			return exec.Command("nsenter", "-t", strconv.Itoa(m.pid), "-n", "sh", "-c", "ss -ltn | grep -q :22").Run()
		}).Should(Succeed(), "sshd of %s: %s", m.name, &said)
	}
}

// mac is the address of the machine's interface, which stays when the machine is started again.
func (m *machine) mac() string {
	return fmt.Sprintf("02:6d:63:00:00:%02x", len(m.address)<<4|int(m.address[len(m.address)-1]-'0'))
}

// group is the machine's cgroup, which is the root of cgroup2 on it.
func (m *machine) group() string { return fmt.Sprintf("%s/mc-%d-%s", cgroups(), os.Getpid(), m.name) }

// stop ends all machines.
func (l *lab) stop() {
	for _, m := range l.machines {
		l.kill(m)
	}
	l.kill(l.client)
}

// kill kills all processes of a machine, and takes its link away: Linux may keep its namespaces for a while.
func (l *lab) kill(m *machine) {
	_ = syscall.Kill(m.pid, syscall.SIGKILL) // it may have ended
	end(m.holder)
	_ = exec.Command("nsenter", "-t", strconv.Itoa(l.lan.Process.Pid), "-n", "ip", "link", "del", m.port).Run() // it may be gone
	emptyGroup(m.group())
}

// end kills a process, and waits for it.
func end(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// on runs a program on a machine, or on the client.
func (m *machine) on(args ...string) fixture.Result {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*fixture.Patience)
	defer cancel()
	all := append([]string{"-t", strconv.Itoa(m.pid), "-m", "-n", "-p", "-u", "-i", "env", "PATH=" + m.dir + "/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, args...)
	cmd := exec.CommandContext(ctx, "nsenter", all...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	r := fixture.Result{Args: args, Stdout: out.String(), Stderr: said.String(), Code: cmd.ProcessState.ExitCode()}
	Expect(ctx.Err()).NotTo(HaveOccurred(), "%v: %s", err, r)
	GinkgoWriter.Println(m.name, r)
	return r
}

// rdmalab runs the program on the client.
func (l *lab) rdmalab(args ...string) fixture.Result {
	GinkgoHelper()
	return l.client.on(append([]string{"rdmalab"}, args...)...)
}

// ok runs a command on the client that must succeed.
func (l *lab) ok(args ...string) string {
	GinkgoHelper()
	r := l.rdmalab(args...)
	Expect(r).To(fixture.HaveExited(0))
	return r.Stdout
}

// left lists what a rack has left on a machine: processes, mounts, files, cgroups, links.
func (m *machine) left() (list []string) {
	GinkgoHelper()
	out := m.on("sh", "-c", "ls /run/rdmalab 2>/dev/null; grep rdmalab /proc/mounts; ls "+cgroups()+"/rdmalab 2>/dev/null; "+
		"for p in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$p 2>/dev/null | grep '^rdmalab'; done; ip link | grep rdmalab; true")
	for line := range strings.Lines(out.Stdout) {
		list = append(list, strings.TrimSpace(line))
	}
	return list
}

// file writes a file that the client reads, and returns its name.
func (l *lab) file(name, text string) string {
	GinkgoHelper()
	path := filepath.Join(l.dir, name)
	write(path, text, 0o644)
	return path
}

func (l *lab) onLAN(args ...string) {
	GinkgoHelper()
	run(append([]string{"nsenter", "-t", strconv.Itoa(l.lan.Process.Pid), "-n"}, args...)...)
}

// awaitNet waits until a process has a network namespace of its own.
func awaitNet(pid int) {
	GinkgoHelper()
	own, err := os.Readlink("/proc/self/ns/net")
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() (string, error) { return os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)) }).ShouldNot(Equal(own))
}

// child returns the child of a process; 0 if it has none yet.
func child(pid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
}

// cgroups is the mount point of cgroup2.
func cgroups() string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.procs"); err == nil {
		return "/sys/fs/cgroup"
	}
	return "/sys/fs/cgroup/unified"
}

// emptyGroup removes a cgroup whose processes have ended, and those below it.
func emptyGroup(group string) {
	var list []string
	_ = filepath.WalkDir(group, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			list = append(list, path)
		}
		return nil
	})
	for i := len(list) - 1; i >= 0; i-- {
		Eventually(func() error {
			if err := os.Remove(list[i]); err != nil && !os.IsNotExist(err) {
				return err
			}
			return nil
		}).Should(Succeed())
	}
}

func run(args ...string) {
	GinkgoHelper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%v: %s", args, out)
}

func write(path, text string, mode os.FileMode) {
	GinkgoHelper()
	Expect(os.WriteFile(path, []byte(text), mode)).To(Succeed())
}

func copyOf(from, to string) {
	GinkgoHelper()
	text, err := os.ReadFile(from)
	Expect(err).NotTo(HaveOccurred())
	write(to, string(text), 0o600)
}
