// Package chaos crashes and hangs hosts and switches, cuts links, and checks how other hosts are
// affected and that nothing is left behind.
package chaos

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

func TestChaos(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "chaos")
}

var _ = BeforeSuite(fixture.Build)
