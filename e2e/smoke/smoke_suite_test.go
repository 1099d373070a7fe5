// Package smoke tests that a rack comes up, that its paths, commands and views work, and that it is
// removed completely.
package smoke

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

func TestSmoke(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "smoke")
}

var _ = BeforeSuite(fixture.Build)
