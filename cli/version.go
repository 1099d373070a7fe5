package cli

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// version is set by the linker; see the Makefile. If it is empty, the build information is used
// instead.
var version string

// module is the path of this module.
const module = "github.com/rdmalab/rdmalab"

// versionInfo describes the program and the machine, for bug reports.
type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Time     string `json:"time,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Kernel   string `json:"kernel"`
}

func readVersion() versionInfo {
	v := versionInfo{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		v.Version = info.Main.Version
		for _, d := range info.Deps {
			if d.Path == module { // a program of another module that calls Main
				v.Version = d.Version
			}
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Revision = s.Value
			case "vcs.modified":
				v.Modified = s.Value == "true"
			case "vcs.time":
				v.Time = s.Value
			}
		}
	}
	if version != "" {
		v.Version = version
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil {
		v.Kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
	}
	return v
}

func versionCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of the program, of Go and of the kernel",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := readVersion()
			if wantJSON(cmd) {
				return printJSON(cmd, v)
			}
			revision := ""
			if v.Revision != "" { // a build without version control has no revision
				revision = "revision " + v.Revision + " " + v.Time
				if v.Modified {
					revision += " (modified)"
				}
				revision += "\n"
			}
			return say(cmd, "rdmalab %s\n%s%s %s\n%s", v.Version, revision, v.Go, v.Platform, v.Kernel)
		},
	}
	outputFlag(cmd)
	return cmd
}
