package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/topo/cni"
	"github.com/rdmalab/rdmalab/topo/rack"
)

// cniCmd makes the command cni. It runs the CNI plugin if a container runtime calls the program
// (then CNI_COMMAND is set), and otherwise prints help. Its subcommands install the plugin and list
// guests.
func cniCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cni",
		Short: "Attach containers of podman, nerdctl or Kubernetes to the rack (CNI plugin)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Getenv("CNI_COMMAND") == "" {
				return cmd.Help()
			}
			if code := cni.Main(); code != 0 {
				return exitCode(code)
			}
			return nil
		},
	}
	cmd.AddCommand(cniInstallCmd(), cniGuestsCmd())
	return cmd
}

func cniInstallCmd() *cobra.Command {
	var bin, conf, network string
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install the plugin, and a network of the rack, where container runtimes look for them",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			name, err := rackName(cmd)
			if err != nil {
				return err
			}
			list, err := cni.ConfList(network, name)
			if err != nil {
				return badUse("--network: %w", err)
			}
			plugin, file := filepath.Join(bin, cni.Program), filepath.Join(conf, "10-"+network+".conflist")
			if err := errors.Join(copySelf(plugin), os.MkdirAll(conf, 0o755)); err != nil {
				return mayNotWrite(err)
			}
			if err := os.WriteFile(file, list, 0o644); err != nil {
				return mayNotWrite(err)
			}
			return say(cmd, "plugin   %s\nnetwork  %s: its containers join rack %q", plugin, file, name)
		},
	}
	f := cmd.Flags()
	f.StringVar(&bin, "bin", "/opt/cni/bin", "folder of the plugins (Debian's podman also looks into /usr/lib/cni)")
	f.StringVar(&conf, "conf", "/etc/cni/net.d", "folder of the networks")
	writesFolder(cmd, "bin", "conf")
	f.StringVar(&network, "network", "rack", "name of the network")
	return cmd
}

// mayNotWrite adds advice to err if err says that this user may not write to a folder.
func mayNotWrite(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w; run this command with sudo, or choose folders of your own with --bin and --conf", err)
	}
	return err
}

// copySelf replaces the file at path by a copy of this program. It does so atomically, because a
// container runtime may start the program at the same time.
func copySelf(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	program, err := os.ReadFile(imageOf)
	if err != nil {
		return err
	}
	file, err := newPendingFile(path)
	if err != nil {
		return err
	}
	defer file.discard()
	if err := file.publish(program, 0o755); err != nil {
		return fmt.Errorf("copy this program to %s: %w", path, err)
	}
	return nil
}

func cniGuestsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "guests",
		Short: "List the containers that are attached to the rack as guests",
		Args:  cobra.NoArgs,
		RunE: onRack(func(cmd *cobra.Command, _ []string, r *rack.Rack) error {
			s, err := r.Status(cmd.Context())
			if err != nil {
				return err
			}
			return show(cmd, append([]rack.GuestStatus{}, s.Guests...), printGuests)
		}),
	}
	listFlags(cmd)
	return cmd
}

func printGuests(w io.Writer, list []rack.GuestStatus) error {
	const idShown = 12
	return handler.WriteTable(w, list, "no guests", "GUEST\tNETWORK\tCONTAINER\tINTERFACE\tADDRESS\tIPV6\tMAC\tLINK\tPORT", func(g *rack.GuestStatus) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%v\t%v\t%v\t%s\t%s", g.Name, g.Network, g.Container[:min(idShown, len(g.Container))], g.Ifname, g.IPv4, g.IPv6, g.MAC, g.Link, g.Port)
	})
}
