package cli

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/container"
	"github.com/rdmalab/rdmalab/topo/rack"
)

// imageOf is the path of the program that the image contains, which is this program.
const imageOf = "/proc/self/exe"

func imageCmd() *cobra.Command {
	var file, program string
	cmd := &cobra.Command{
		Use:   "image [--file FILE]",
		Short: "Make the container image of this program, without a registry",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" && program != imageOf {
				return badUse("--program is for a file: give --file")
			}
			image, err := container.NewImage(program)
			if err != nil {
				return err
			}
			if file != "" {
				f, err := os.Create(file)
				if err != nil {
					return err
				}
				_, err = image.WriteTo(f)
				return errors.Join(err, f.Close())
			}
			socket, err := container.SocketFromEnv()
			if err != nil {
				return err
			}
			e, err := container.Connect(cmd.Context(), socket)
			if err != nil {
				return err
			}
			id, err := e.Ensure(cmd.Context(), image)
			if err != nil {
				return err
			}
			return say(cmd, "%s is %s", container.ImageName, id)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "write the image to this file (default: load it into docker)")
	writesFile(cmd, "file")
	cmd.Flags().StringVar(&program, "program", imageOf, "with --file: the static program in the image")
	return cmd
}

func containerInitCmd() *cobra.Command {
	var dir, name string
	cmd := hiddenCmd(container.InitCommand, "Process 1 of a host's container", func(*cobra.Command, []string) error {
		return exitCode(rack.ContainerInit(dir, name))
	})
	cmd.Flags().StringVar(&dir, "rack-dir", "", "state folder of the rack")
	cmd.Flags().StringVar(&name, "name", "", "name of the host")
	return cmd
}

// containerHoldCmd is the command that runs as process 1 of a container that holds a host's network;
// see rack.ContainerHold.
func containerHoldCmd() *cobra.Command {
	return hiddenCmd(container.HoldCommand, "Process 1 of a container that holds a host's network", func(*cobra.Command, []string) error {
		return exitCode(rack.ContainerHold())
	})
}

func watcherCmd() *cobra.Command {
	return hiddenCmd(container.WatcherName, "Plug the containers of a rack (started by up)", func(cmd *cobra.Command, _ []string) error {
		name, err := rackName(cmd)
		if err != nil {
			return err
		}
		log := logOf(cmd, rackfile.PathsOf(name).Dir)
		return log.supervised(container.WatcherName, func() error { return rack.RunWatcher(cmd.Context(), name, log.logger()) })
	})
}
