// Package transport tests on a real rack that a reliable connection delivers everything although
// links lose, double, reorder and corrupt packets.
package transport

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

func TestTransport(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "transport")
}

var _ = BeforeSuite(fixture.Build)
