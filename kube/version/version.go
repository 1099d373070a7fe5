// Package version has the version of the programs of this module. Leaves, hosts and the operator of one rack have
// the same.
package version

import "runtime/debug"

// version is set by the linker; see the Makefile.
var version = ""

// String returns the version that was linked in, or that of the source as Go knows it.
func String() string {
	if version != "" {
		return version
	}
	if b, ok := debug.ReadBuildInfo(); ok {
		for _, s := range b.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown"
}
