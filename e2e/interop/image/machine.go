package image

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/rdmalab/rdmalab/e2e/interop/ask"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// QEMU is the program that runs virtual machines.
const QEMU = "qemu-system-x86_64"

// FirstLink is the descriptor of a virtual machine's first link; the others follow.
const FirstLink = 3

// Machine is how a virtual machine is started.
type Machine struct {
	Kernel string `json:"kernel"` // paths of the kernel and the initrd
	Initrd string `json:"initrd"`
	// Links are the MAC addresses of eth0, eth1, and so on; the other end of each is a socket of
	// datagrams, one for each frame, that QEMU inherits from descriptor FirstLink on.
	Links []wire.MAC `json:"links"`
	MTU   int        `json:"mtu"`
	Addrs []string   `json:"addrs"` // addresses of eth0, with prefix lengths
	// Processors is how many the machine has; 0 means two.
	Processors int `json:"processors"`
	// Memory is in MiB; 0 means 768.
	Memory  int    `json:"memory"`
	Command string `json:"command"` // path of the unix socket of the guest's port for commands
	// Verbs is the path of the sockets for guest/verbs.py, each with its number appended; "" means
	// that the image has no such program.
	Verbs string `json:"verbs"`
	// KVM: the virtual machine uses the processors of this machine by KVM, not emulated ones.
	KVM     bool   `json:"kvm"`
	Console string `json:"console"` // path of the file to which the guest's console is written
}

// Args returns QEMU's arguments. The processors are emulated unless KVM is set, because not every
// machine has KVM. They lack the instruction pclmulqdq: rxe's CRC would be slower with the emulated
// instruction. There are two processors by default, so that one is left to the driver when a
// program polls.
func (m *Machine) Args() []string {
	line := fmt.Sprintf("console=ttyS0 quiet loglevel=4 panic=-1 nokaslr mitigations=off tsc=reliable rdmalab.mtu=%d", m.MTU)
	for _, a := range m.Addrs {
		line += " rdmalab.ip=" + a
	}
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-M", "q35",
		"-m", fmt.Sprintf("%dM", cmp.Or(m.Memory, 768)), "-smp", fmt.Sprint(cmp.Or(m.Processors, 2)),
		"-kernel", m.Kernel, "-initrd", m.Initrd, "-append", line, "-serial", "file:" + m.Console,
	}
	if m.KVM {
		args = append(args, "-accel", "kvm", "-cpu", "host")
	} else {
		args = append(args, "-accel", "tcg,thread=multi,tb-size=256", "-cpu", "max,-pclmulqdq")
	}
	for i, mac := range m.Links {
		args = append(args,
			"-netdev", fmt.Sprintf("dgram,id=net%d,local.type=fd,local.str=%d", i, FirstLink+i),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=net%d,mac=%s,romfile=,%s", i, mac, strings.Join(offloads, "=off,")+"=off"))
	}
	args = append(args,
		"-device", "virtio-rng-pci", "-device", "virtio-serial-pci",
		"-chardev", "socket,id=command,server=on,wait=off,path="+m.Command,
		"-device", "virtserialport,chardev=command,name="+ask.CommandPort)
	for i := range ask.VerbsPorts {
		if m.Verbs == "" {
			break
		}
		args = append(args,
			"-chardev", fmt.Sprintf("socket,id=verbs%d,server=on,wait=off,path=%s%d", i, m.Verbs, i),
			"-device", fmt.Sprintf("virtserialport,chardev=verbs%d,name=%s", i, ask.VerbsPort(i)))
	}
	return args
}

// offloads lists the features of virtio-net that a datagram socket as link cannot provide.
var offloads = []string{"csum", "gso", "guest_csum", "guest_tso4", "guest_tso6", "guest_ufo", "host_tso4", "host_tso6", "host_ufo"}
