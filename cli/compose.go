package cli

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/container"
	"github.com/rdmalab/rdmalab/topo/rack"
)

// Values of the flag --runtime of `up`: hosts are processes, or containers of docker.
const (
	runtimeProcess = "process"
	runtimeDocker  = "docker"
)

// containerFlags are the flags of `up` that choose between processes and containers.
type containerFlags struct{ runtime, plug, compose string }

func (f *containerFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.runtime, "runtime", runtimeProcess, "what a host is: process (processes in namespaces of this machine) or docker (a container)")
	plugFlag(cmd, &f.plug)
	cmd.Flags().StringVar(&f.compose, "compose", "", "compose file that rdmalab compose has made: docker compose makes the containers in it, and up attaches those with the rack's labels; give -f the rack file that rdmalab compose got, if any (implies --runtime docker)")
	complete(cmd, "runtime", runtimeProcess, runtimeDocker)
	must(cmd.MarkFlagFilename("compose", "yaml", "yml"))
}

func plugFlag(cmd *cobra.Command, plug *string) {
	cmd.Flags().StringVar(plug, "plug", string(container.PlugOutside), "with containers: how a host's container gets its NIC: outside (rdmalab attaches it to the host's container), holder (rdmalab attaches it to a second container "+
		"that shares its network with the host's container, so that the link survives a crash of the host) or driver (the container engine attaches it)")
	complete(cmd, "plug", string(container.PlugOutside), string(container.PlugHolder), string(container.PlugDriver))
}

// settings returns the settings of containers; nil means that hosts run as processes.
func (f *containerFlags) settings(cmd *cobra.Command) (*container.Settings, error) {
	plug, err := container.ParsePlug(f.plug)
	switch {
	case err != nil:
		return nil, asUse(err)
	case f.runtime != runtimeProcess && f.runtime != runtimeDocker:
		return nil, badUse("runtime %q is unknown; %suse %s or %s", f.runtime, nearest.Meant(f.runtime, []string{runtimeProcess, runtimeDocker}), runtimeProcess, runtimeDocker)
	case f.runtime == runtimeProcess && f.compose == "":
		if cmd.Flags().Changed("plug") { // --plug, even with its default value, means that hosts are containers
			return nil, badUse("--plug is for containers: add --runtime %s", runtimeDocker)
		}
		return nil, nil
	}
	s := &container.Settings{Plug: plug}
	if f.compose != "" {
		if s.Compose, err = filepath.Abs(f.compose); err != nil {
			return nil, err
		}
	}
	s.Socket, err = container.SocketFromEnv()
	return s, err
}

func bringUp(ctx context.Context, s *rackfile.Rack, in *container.Settings) (*rack.Rack, error) {
	if in == nil {
		return rack.Up(ctx, s)
	}
	return rack.UpInContainers(ctx, s, *in)
}

func composeCmd() *cobra.Command {
	var plug string
	cmd := &cobra.Command{
		Use:   "compose [RACK.yaml]",
		Short: "Print a compose file with the hosts of a rack",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := container.ParsePlug(plug)
			if err != nil {
				return asUse(err)
			}
			file, from := "", "the built-in rack"
			if len(args) == 1 {
				file, from = args[0], filepath.Base(args[0])
			}
			s, err := readRack(cmd, file)
			if err != nil {
				return err
			}
			if s.HasNICs() {
				return badUse("a host that is a container has one NIC: leave out `nics` in %s", from)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), container.Compose(s, p, from))
			return err
		},
	}
	plugFlag(cmd, &plug)
	return cmd
}
