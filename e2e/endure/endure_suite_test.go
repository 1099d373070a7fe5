// Package endure runs a rack at full load for as long as RDMALAB_ENDURE says, with faults and with
// programs that misbehave and die, and checks that no connection is lost and that the daemons'
// memory, descriptors and goroutines stay as they were.
package endure

import (
	"os"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

func TestMain(m *testing.M) {
	if seed := os.Getenv(wildVariable); seed != "" {
		wild(seed)
		return
	}
	fixture.Main(m)
}

func TestEndure(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "endure")
}

var _ = BeforeSuite(fixture.Build)
