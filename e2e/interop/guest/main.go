// Command guest is process 1 of the virtual machine: it loads the modules of the image, brings up
// the interface and the soft-RoCE device on it, keeps guest/verbs.py running at virtio ports if the
// image has it, and runs commands that arrive at another virtio port.
//
// Called as a command in the machine, `init times NAME` prints for how many nanoseconds the processes
// with that name have had a processor, and have waited for one.
//
// The kernel command line says rdmalab.ip=ADDR/BITS (any number of times), rdmalab.mtu=N.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/e2e/interop/ask"
)

// pause is the time between two tries.
const pause = 50 * time.Millisecond

// verbsProgram is the path of guest/verbs.py in the images that have it.
const verbsProgram = "/verbs.py"

// interfaceWait bounds the time until the interface and the ports are there.
const interfaceWait = 20 * time.Second

func main() {
	if len(os.Args) == 3 && os.Args[1] == "times" { // a command in the machine: it is not process 1
		ran, waited, err := times(os.Args[2])
		if err != nil {
			fmt.Fprintln(os.Stderr, "times:", err)
			os.Exit(1)
		}
		fmt.Println(ran, waited)
		return
	}
	if err := boot(); err != nil {
		fmt.Println("guest:", err)
	} else {
		if _, err := os.Stat(verbsProgram); err == nil {
			for i := range ask.VerbsPorts {
				go verbs(ask.VerbsPort(i))
			}
		}
		err := serve()
		fmt.Println("guest: end:", err)
	}
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Println("guest: power off:", err)
	}
}

func boot() error {
	for _, m := range [][3]string{
		{"proc", "/proc", "proc"}, {"sys", "/sys", "sysfs"}, {"dev", "/dev", "devtmpfs"}, {"tmp", "/tmp", "tmpfs"}, {"run", "/run", "tmpfs"},
	} {
		if err := unix.Mount(m[0], m[1], m[2], 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", m[1], err)
		}
	}
	console, err := os.OpenFile("/dev/console", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	os.Stdout, os.Stderr = console, console
	if err := os.Setenv("PATH", "/usr/sbin:/usr/bin"); err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll("/dev/shm", 0o755), unix.Mount("shm", "/dev/shm", "tmpfs", 0, "")); err != nil {
		return err
	}
	if err := cgroups(); err != nil {
		return err
	}
	if err := loadModules(); err != nil {
		return err
	}
	return network()
}

// cgroups mounts cgroup2 alone, as newer distributions do, with the controller of memory.
func cgroups() error {
	const root = "/sys/fs/cgroup"
	if err := unix.Mount("cgroup2", root, "cgroup2", 0, ""); err != nil {
		return fmt.Errorf("mount %s: %w", root, err)
	}
	return os.WriteFile(root+"/cgroup.subtree_control", []byte("+memory"), 0)
}

func loadModules() error {
	names, err := filepath.Glob("/modules/*.ko")
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		// A module for hardware that is not there refuses with ENODEV.
		if err != nil && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("load %s: %w", name, err)
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// network brings up the interface with the addresses of the command line, and a soft-RoCE device on
// it.
func network() error {
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	mtu := "1500"
	var addrs []string
	for _, w := range strings.Fields(string(line)) {
		if v, ok := strings.CutPrefix(w, "rdmalab.ip="); ok {
			addrs = append(addrs, v)
		}
		if v, ok := strings.CutPrefix(w, "rdmalab.mtu="); ok {
			mtu = v
		}
	}
	if err := await("interface eth0", func() bool { _, err := os.Stat("/sys/class/net/eth0"); return err == nil }); err != nil {
		return err
	}
	for _, v := range [][2]string{{"accept_dad", "0"}, {"accept_ra", "0"}, {"router_solicitations", "0"}} {
		for _, where := range []string{"all", "default", "eth0"} {
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+where+"/"+v[0], []byte(v[1]), 0); err != nil {
				return err
			}
		}
	}
	steps := [][]string{{"ip", "link", "set", "lo", "up"}, {"ip", "link", "set", "eth0", "mtu", mtu, "up"}}
	for _, a := range addrs {
		steps = append(steps, []string{"ip", "addr", "add", a, "dev", "eth0"})
	}
	steps = append(steps, []string{"rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "eth0"})
	for _, s := range steps {
		if out, err := exec.Command(s[0], s[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(s, " "), err, out)
		}
	}
	return nil
}

func await(what string, ready func() bool) error {
	for end := time.Now().Add(interfaceWait); !ready(); time.Sleep(pause) {
		if time.Now().After(end) {
			return fmt.Errorf("%s did not appear", what)
		}
	}
	return nil
}

// port finds the device of a virtio port by its name.
func port(name string) (dev string, err error) {
	return dev, await("virtio port "+name, func() bool {
		files, _ := filepath.Glob("/sys/class/virtio-ports/*/name") // Glob fails only if the pattern is malformed
		for _, f := range files {
			if b, err := os.ReadFile(f); err == nil && strings.TrimSpace(string(b)) == name {
				dev = "/dev/" + filepath.Base(filepath.Dir(f))
			}
		}
		return dev != ""
	})
}

// verbs runs guest/verbs.py at a port, and restarts it when it ends.
func verbs(name string) {
	for {
		dev, err := port(name)
		if err == nil {
			cmd := exec.Command("/usr/bin/python3."+pythonVersion(), "-S", "-u", verbsProgram, dev)
			cmd.Env = append(os.Environ(), "PYTHONPATH=/usr/lib/python3/dist-packages")
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			err = cmd.Run()
		}
		fmt.Println("guest: verbs:", err)
		time.Sleep(pause)
	}
}

// pythonVersion returns what follows "python3." in the name of the interpreter. The usual link
// /usr/bin/python3 may be missing, because installation scripts of packages did not run.
func pythonVersion() string {
	names, _ := filepath.Glob("/usr/bin/python3.[0-9]*") // Glob fails only if the pattern is malformed
	for _, n := range names {
		if v := strings.TrimPrefix(n, "/usr/bin/python3."); !strings.Contains(v, "-") {
			return v
		}
	}
	return ""
}

// serve runs commands until the host closes the port. Several may run at the same time.
func serve() error {
	dev, err := port(ask.CommandPort)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(dev, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	enc := json.NewEncoder(f)
	running := map[int]*exec.Cmd{}
	answer := func(a ask.Answer) {
		mu.Lock()
		defer mu.Unlock()
		delete(running, a.ID)
		if err := enc.Encode(a); err != nil {
			fmt.Println("guest: answer:", err)
		}
	}
	for {
		dec := json.NewDecoder(f)
		for {
			var q ask.Question
			if err := dec.Decode(&q); errors.Is(err, io.EOF) {
				break // the host has closed the other end
			} else if err != nil {
				return err
			}
			if q.PowerOff {
				return nil
			}
			if len(q.Args) == 0 {
				mu.Lock()
				if cmd := running[q.ID]; cmd != nil {
					sig := unix.SIGKILL
					if q.Signal != 0 {
						sig = unix.Signal(q.Signal)
					}
					_ = cmd.Process.Signal(sig) // the program may have ended
				}
				mu.Unlock()
				continue
			}
			out := &ask.Output{}
			cmd := exec.Command(q.Args[0], q.Args[1:]...)
			cmd.Stdout, cmd.Stderr = out, out
			cmd.Env = append(os.Environ(), q.Env...)
			if err := cmd.Start(); err != nil {
				answer(ask.Answer{ID: q.ID, Code: -1, Output: err.Error()})
				continue
			}
			mu.Lock()
			running[q.ID] = cmd
			mu.Unlock()
			go func() {
				_ = cmd.Wait() // the answer says how it ended
				code, said := cmd.ProcessState.ExitCode(), out.String()
				if code < 0 {
					said += cmd.ProcessState.String() + "\n" // which signal killed it
				}
				answer(ask.Answer{ID: q.ID, Code: code, Output: said})
			}()
		}
		time.Sleep(pause)
	}
}
