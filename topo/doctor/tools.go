package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// family is a family of Linux distributions: the names of their packages, and the command that
// installs one.
type family struct {
	ids     []string
	install string
	// names has the package names that differ from Debian's.
	names map[string]string
}

var families = []family{
	{[]string{"debian", "ubuntu"}, "apt-get install -y --no-install-recommends ", map[string]string{"docker": "docker.io"}},
	{[]string{"fedora", "rhel", "centos"}, "dnf install -y ", map[string]string{"docker": "moby-engine", "tshark": "wireshark-cli", "qemu-system-x86": "qemu-kvm", "qemu-system-arm": "qemu-system-aarch64"}},
	{[]string{"alpine"}, "apk add ", map[string]string{"docker-compose": "docker-cli-compose", "qemu-system-x86": "qemu-system-x86_64", "qemu-system-arm": "qemu-system-aarch64"}},
	{[]string{"arch"}, "pacman -S --noconfirm ", map[string]string{"tshark": "wireshark-cli", "qemu-system-x86": "qemu-base", "qemu-system-arm": "qemu-system-aarch64"}},
	{[]string{"suse", "opensuse"}, "zypper install -y ", map[string]string{"tshark": "wireshark", "qemu-system-x86": "qemu-x86"}},
}

// install returns the command that installs a package, given by its Debian name. If the
// distribution is unknown, it returns a hint in words.
func install(s *System, pkg string) string {
	b, _ := s.ReadFile("/etc/os-release") // without the file the distribution is unknown, which is handled below
	ids := strings.Fields(strings.Trim(value(string(b), "ID="), `"`) + " " + strings.Trim(value(string(b), "ID_LIKE="), `"`))
	for _, id := range ids {
		for _, f := range families {
			if slices.Contains(f.ids, id) {
				if name, ok := f.names[pkg]; ok {
					pkg = name
				}
				return f.install + pkg
			}
		}
	}
	return "install the package " + pkg
}

// value returns what follows a label at the beginning of a line, without white space around it.
func value(text, label string) string {
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, label); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func lookDocker(ctx context.Context, s *System) Finding {
	const means = "hosts of a rack can be containers"
	if _, err := s.Look("docker"); err != nil {
		return lacking("no docker", "hosts of a rack cannot be containers; namespaces do as well", install(s, "docker"))
	}
	v, err := s.Run(ctx, "docker", "version", "--format", "{{.Server.Version}}")
	if err != nil && s.Euid != 0 {
		return weaker("client; only root can ask the engine: "+err.Error(), means, asRoot)
	}
	if err != nil {
		return weaker("client without an engine: "+err.Error(), "hosts of a rack cannot be containers; namespaces do as well",
			"systemctl start docker; without systemd: dockerd --bridge=none --iptables=false &")
	}
	return good("Engine "+v, means)
}

func lookCompose(ctx context.Context, s *System) Finding {
	const means = "a rack of containers can be described by a compose file"
	if _, err := s.Look("docker"); err == nil {
		if v, err := s.Run(ctx, "docker", "compose", "version", "--short"); err == nil {
			return good("Compose "+v, means)
		}
	}
	if _, err := s.Look("docker-compose"); err == nil {
		if v, err := s.Run(ctx, "docker-compose", "version", "--short"); err == nil {
			return good("docker-compose "+v, means)
		}
	}
	return lacking("no compose", "compose files of a rack cannot be used", install(s, "docker-compose"))
}

func lookPodman(ctx context.Context, s *System) Finding {
	const means = "containers of podman can join a rack: rdmalab cni install"
	if _, err := s.Look("podman"); err != nil {
		return lacking("no podman", "its containers cannot join a rack", install(s, "podman"))
	}
	v, err := s.Run(ctx, "podman", "--version")
	if err != nil {
		return weaker("does not run: "+err.Error(), means, "podman info")
	}
	found := strings.TrimPrefix(v, "podman version ")
	old, _ := mounts(s, "cgroup")
	if _, err := s.Look("runc"); err != nil && len(old) > 0 && unified(s) != "" {
		return weaker(found+" with crun on hybrid cgroups", "crun refuses to run there", install(s, "runc"))
	}
	return good(found, means)
}

// machines has QEMU's program and the Debian package that contains it, by architecture.
var machines = map[string][2]string{
	"amd64": {"qemu-system-x86_64", "qemu-system-x86"},
	"arm64": {"qemu-system-aarch64", "qemu-system-arm"},
}

func lookQEMU(ctx context.Context, s *System) Finding {
	const means = "`make interop` boots a kernel with rdma_rxe against rdmalab's NIC"
	m, ok := machines[s.Arch]
	if !ok {
		return lacking("none for "+s.Arch, "`make interop` runs on amd64 and arm64 only", "use another machine")
	}
	if _, err := s.Look(m[0]); err != nil {
		return lacking("no "+m[0], "`make interop` cannot run; racks do not need it", install(s, m[1]))
	}
	v, err := s.Run(ctx, m[0], "--version")
	if err != nil {
		return weaker("does not run: "+err.Error(), means, m[0]+" --version")
	}
	v, _, _ = strings.Cut(strings.TrimPrefix(v, "QEMU emulator version "), " ")
	return good(v, means)
}

func lookKVM(_ context.Context, s *System) Finding {
	switch err := s.Writable("/dev/kvm"); {
	case err != nil && s.Euid != 0:
		return weaker(fmt.Sprintf("/dev/kvm: %v", err), "QEMU can use it as root or in group kvm only", asRoot)
	case err != nil:
		return weaker(fmt.Sprintf("/dev/kvm: %v", err), "QEMU emulates the processor: `make interop` takes several times as long",
			"modprobe kvm_intel || modprobe kvm_amd; in a virtual machine: switch nested virtualisation on")
	}
	return good("/dev/kvm", "QEMU runs at full speed")
}

func lookTshark(ctx context.Context, s *System) Finding {
	if _, err := s.Look("tshark"); err != nil {
		return lacking("no tshark", "tests that compare captures with Wireshark's dissector are skipped; `rdmalab dump` reads captures", install(s, "tshark"))
	}
	v, err := s.Run(ctx, "tshark", "--version")
	if err != nil {
		return weaker("does not run: "+err.Error(), "tests with Wireshark's dissector fail", "tshark --version")
	}
	v = strings.Trim(strings.TrimPrefix(v, "TShark (Wireshark) "), ".")
	return good(v, "captures are compared with what Wireshark reads")
}
