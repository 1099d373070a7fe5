package image

import (
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Each link is a descriptor of its own, in order, and only an image that has guest/verbs.py has ports
// for it.
func TestArgs(t *testing.T) {
	m := Machine{Links: []wire.MAC{{2, 1}, {2, 2}}, MTU: 4200, Addrs: []string{"10.0.0.1/24", "fd00::1/64"}, Command: "/c", Verbs: "/v"}
	all := strings.Join(m.Args(), " ")
	for _, want := range []string{
		"id=net0,local.type=fd,local.str=3", "netdev=net0,mac=02:01:00:00:00:00", "id=net1,local.type=fd,local.str=4", "netdev=net1,mac=02:02:00:00:00:00",
		"host_ufo=off", "rdmalab.mtu=4200", "rdmalab.ip=10.0.0.1/24", "rdmalab.ip=fd00::1/64", "path=/v0", "path=/v2", "-smp 2", "-m 768M", "-accel tcg",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in %s", want, all)
		}
	}
	m.Verbs, m.KVM, m.Processors, m.Memory = "", true, 1, 1024
	all = strings.Join(m.Args(), " ")
	for _, refused := range []string{"verbs", "tcg"} {
		if strings.Contains(all, refused) {
			t.Errorf("%q in %s", refused, all)
		}
	}
	for _, want := range []string{"-smp 1", "-m 1024M", "-accel kvm"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in %s", want, all)
		}
	}
}
