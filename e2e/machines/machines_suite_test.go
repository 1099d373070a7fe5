// Package machines tests racks on several machines, which ssh reaches: trees of namespaces with a /run, a
// host name, a root of cgroups and an sshd of their own, joined by a bridge. They are brought up, hurt, cut
// off, killed and taken back, and nothing is left on them.
package machines

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

func TestMachines(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "machines")
}

var _ = BeforeSuite(func() {
	fixture.Build()
	fixture.Need("/usr/sbin/sshd", "openssh-server")
	fixture.Need("ssh", "openssh-client")
	fixture.Need("ip", "iproute2")
})
